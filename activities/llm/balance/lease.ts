import type { PoolState } from '../../../contracts/pool.ts';

/**
 * What a run worker knows of its pool and how long it may act on that: a lease's time from the moment before it asked,
 * by its own clock, which goes on while the process stands still. The pool waits as long after a change, so nobody
 * acts on what was before. Pure: the time is given, in milliseconds.
 */
export class Lease {
  readonly #worker: string;
  #state: PoolState | undefined;
  #until = Number.NEGATIVE_INFINITY;
  /** It has been live without a gap since then. */
  #since = Number.POSITIVE_INFINITY;

  /** `worker` is the name that the pool knows this worker by. */
  constructor(worker: string) {
    this.#worker = worker;
  }

  /** What was told last; also when the lease has run out. */
  get state(): PoolState | undefined {
    return this.#state;
  }

  get until(): number {
    return this.#until;
  }

  /** False if the pool does not know this worker: what it tells is then no lease. */
  get known(): boolean {
    return this.#state?.workers.includes(this.#worker) ?? false;
  }

  /** Takes an answer that was asked for at `askedAt`. @returns false if a newer one came before. */
  take(state: PoolState, askedAt: number, now: number): boolean {
    if (this.#state && state.epoch < this.#state.epoch) return false;
    const wasLive = this.isLive(now);
    const newer = state.epoch !== this.#state?.epoch;
    this.#state = state;
    const until = this.known ? askedAt + state.leaseSeconds * 1000 : Number.NEGATIVE_INFINITY;
    this.#until = newer || !this.known ? until : Math.max(this.#until, until);
    if (!wasLive) this.#since = now;
    return true;
  }

  /** Nothing may be begun any more. */
  giveUp(): void {
    this.#until = Number.NEGATIVE_INFINITY;
  }

  isLive(now: number): boolean {
    return now < this.#until;
  }

  /** True if it has been live all the time from `then` to now. */
  heldSince(then: number, now: number): boolean {
    return this.isLive(now) && this.#since <= then;
  }
}
