/** What is left of the requests under way when a server has too many. */
const DECREASE = 0.5;

/**
 * How many requests at once a server takes, learnt from its answers: when it refuses one because it has too many, or
 * lets more wait than it works on, half as many are sent; for each full round that it then serves, one more. Pure.
 */
export class ConcurrencyLimit {
  #most = Number.POSITIVE_INFINITY;
  #open = 0;
  /** Requests begun, and how many of them before the last decrease: what those say is known. */
  #begun = 0;
  #decreasedAt = 0;

  get most(): number {
    return this.#most;
  }

  /** Requests under way. */
  get open(): number {
    return this.#open;
  }

  get hasRoom(): boolean {
    return this.#open < Math.floor(this.#most);
  }

  /** A request begins. @returns its number, for what becomes of it */
  begin(): number {
    this.#open++;
    return this.#begun++;
  }

  /** A request is over, whatever became of it. */
  end(): void {
    this.#open--;
  }

  /** A request was served. */
  served(): void {
    // One that never came near its limit tells nothing of it.
    if (this.#open >= Math.floor(this.#most)) this.#most += 1 / this.#most;
  }

  /** The server had too many, as the request with this number tells, or, without one, its own figures. */
  congested(request = this.#begun): void {
    if (request < this.#decreasedAt) return;
    this.#decreasedAt = this.#begun;
    this.#most = Math.max(1, Math.floor(this.#open * DECREASE));
  }
}
