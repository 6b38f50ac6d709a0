import type { LimitHit } from '../../../contracts/sandbox.ts';

/** What has hit limits of a sandbox, and when, so that the commands of that time can say so. */
export class Hits {
  private readonly last = new Map<LimitHit, number>();

  record(limit: LimitHit): void {
    this.last.set(limit, performance.now());
  }

  /** The last that was hit since `started` (of performance.now()). */
  since(started: number): LimitHit | null {
    let found: LimitHit | null = null;
    let latest = started;
    for (const [limit, at] of this.last) {
      if (at < latest) continue;
      [found, latest] = [limit, at];
    }
    return found;
  }
}
