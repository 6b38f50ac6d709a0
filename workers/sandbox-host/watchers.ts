import type { WatchEvent } from '../../contracts/sandbox.ts';

/** One who holds, or held, the sandbox. */
export interface Watcher {
  readonly fence: number;
  /** It has been told to pause, and waits for what comes after. */
  readonly knowsPause: boolean;
}

/** Those who wait to hear what becomes of a sandbox. Each is told once. */
export class Watchers {
  private readonly waiting = new Set<{ who: Watcher; tell: (event: WatchEvent) => void }>();

  get size(): number {
    return this.waiting.size;
  }

  /** Resolves with the event, or with null when `signal` is aborted first. */
  wait(who: Watcher, signal: AbortSignal): Promise<WatchEvent | null> {
    return new Promise((resolve) => {
      if (signal.aborted) return resolve(null);
      const watcher = {
        who,
        tell: (event: WatchEvent | null) => {
          this.waiting.delete(watcher);
          signal.removeEventListener('abort', stop);
          resolve(event);
        },
      };
      const stop = (): void => watcher.tell(null);
      signal.addEventListener('abort', stop);
      this.waiting.add(watcher);
    });
  }

  tellAll(event: WatchEvent): void {
    for (const watcher of [...this.waiting]) watcher.tell(event);
  }

  /** Tells those who do not know it yet to pause. */
  tellPause(): void {
    for (const watcher of [...this.waiting]) if (!watcher.who.knowsPause) watcher.tell({ event: 'pause' });
  }

  /** Tells those who hold a fence older than `fence` that they have been superseded. */
  supersede(fence: number): void {
    for (const watcher of [...this.waiting])
      if (watcher.who.fence < fence) watcher.tell({ event: 'superseded' });
  }
}
