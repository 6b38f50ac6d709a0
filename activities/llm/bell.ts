/** Wakes all that wait for something to have changed. */
export class Bell {
  #waiting = new Set<() => void>();

  ring(): void {
    const waiting = this.#waiting;
    this.#waiting = new Set();
    for (const wake of waiting) wake();
  }

  /** Resolves at the next ring. @throws the signal's reason if it is aborted before. */
  heard(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.delete(wake);
        reject(signal.reason);
      };
      const wake = () => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      if (signal.aborted) return leave();
      signal.addEventListener('abort', leave, { once: true });
      this.#waiting.add(wake);
    });
  }
}
