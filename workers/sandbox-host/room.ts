/** Places for so many at once; whoever comes later waits, in the order of coming. */
export class Room {
  readonly size: number;
  private inside = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(size: number) {
    this.size = size;
  }

  /** Those who have a place. */
  get taken(): number {
    return this.inside;
  }

  /** @throws the signal's reason when it is aborted before there is a place */
  async enter(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.inside < this.size) {
      this.inside++;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const admitted = (): void => {
        signal.removeEventListener('abort', left);
        resolve();
      };
      const left = (): void => {
        this.waiting.splice(this.waiting.indexOf(admitted), 1);
        reject(signal.reason);
      };
      signal.addEventListener('abort', left, { once: true });
      this.waiting.push(admitted);
    });
  }

  /** Gives a place back, to whoever has waited longest. */
  leave(): void {
    const next = this.waiting.shift();
    if (next) next();
    else this.inside--;
  }
}
