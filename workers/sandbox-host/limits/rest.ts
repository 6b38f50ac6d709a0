/** A look that takes long is followed by a pause of this many times its length. */
const REST_FACTOR = 4;
/** Parts of a limit that may be used up unseen before a closer look. */
export const UNSEEN_PARTS = 16;
const UNSEEN_BYTES = 64 * 1024 ** 2;

/** Bytes of a limit that may be used up unseen before a closer look. */
export function unseen(limit: number): number {
  return Math.min(UNSEEN_BYTES, limit / UNSEEN_PARTS);
}

/** Runs one look at a time, and lets it rest in proportion to what it took. */
export class Rest {
  private next = 0;

  run(look: () => Promise<void>, failed: (error: unknown) => void): void {
    const started = performance.now();
    if (started < this.next) return;
    this.next = Number.POSITIVE_INFINITY;
    look()
      .catch(failed)
      .finally(() => {
        const now = performance.now();
        this.next = now + Math.min((now - started) * REST_FACTOR, 60_000);
      });
  }
}
