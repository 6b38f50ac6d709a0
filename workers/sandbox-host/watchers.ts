import type { WatchEvent } from '../../contracts/sandbox.ts';

/** Those who wait to hear what becomes of a sandbox. Each is told once. */
export class Watchers {
  private readonly waiting = new Set<{ fence: number; tell: (event: WatchEvent) => void }>();

  get size(): number {
    return this.waiting.size;
  }

  /** Resolves with the event, or with null when `signal` is aborted first. */
  wait(fence: number, signal: AbortSignal): Promise<WatchEvent | null> {
    return new Promise((resolve) => {
      if (signal.aborted) return resolve(null);
      const watcher = {
        fence,
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

  /** Tells those who hold a fence older than `fence` that they have been superseded. */
  supersede(fence: number): void {
    for (const watcher of [...this.waiting]) if (watcher.fence < fence) watcher.tell({ event: 'superseded' });
  }
}
