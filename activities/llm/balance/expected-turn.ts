/** Share of the newest turn in the mean. */
const WEIGHT = 0.01;
/** What a rollout that runs its tools still adds, and one whose turn is longer than most: it will be back. */
const IDLE = 0.5;
/** What is taken for a turn before any has ended. */
const FIRST = 256;

/**
 * What a rollout is expected to ask of its server, in whole tokens (whose sums are exact): a mean turn, less the
 * tokens that have come while it samples, at least a part of one while it is open. A limit on a turn's tokens says
 * little, since most end long before it. Tried in `npm run bench -- balance` against heavier weights for long turns,
 * which let others wait longer.
 */
export class ExpectedTurn {
  #mean = FIRST;

  /** A turn has ended with so many tokens. */
  saw(tokens: number): void {
    this.#mean += WEIGHT * (tokens - this.#mean);
  }

  /** Load of a rollout that samples and has so many tokens of its turn. */
  sampling(received: number): number {
    return Math.max(Math.round(this.#mean - received), this.idle);
  }

  /** Load of one that does something else. */
  get idle(): number {
    return Math.round(this.#mean * IDLE);
  }
}
