import { MinHeap } from './min-heap.ts';

/** How long a member that failed is left alone: doubled with each failure in a row. */
export interface BackOff {
  readonly firstMs: number;
  readonly mostMs: number;
}

export const DEFAULT_BACK_OFF: BackOff = { firstMs: 1_000, mostMs: 60_000 };

/** What is known of a member. */
interface Standing {
  /** Tokens that its rollouts are still expected to sample. */
  load: number;
  /** Failures in a row. */
  failures: number;
  /** Until when it is left alone. */
  awayUntil: number;
}

/** A rollout's member, and what it adds to its load. */
interface Place<M> {
  readonly member: M;
  load: number;
}

/**
 * Chooses a server for each rollout: the one with the least load in tokens among those that are healthy. A rollout
 * keeps its server, whose prefix cache holds its prompt, until that server fails. Pure: the time is given.
 */
export class Balancer<M> {
  readonly #standings = new Map<M, Standing>();
  readonly #healthy = new MinHeap<M>();
  readonly #places = new Map<string, Place<M>>();
  readonly #backOff: BackOff;

  constructor(backOff: BackOff = DEFAULT_BACK_OFF) {
    this.#backOff = backOff;
  }

  get members(): M[] {
    return [...this.#standings.keys()];
  }

  /** A new member has no load, so it takes the next rollouts. */
  add(member: M): void {
    if (this.#standings.has(member)) return;
    this.#standings.set(member, { load: 0, failures: 0, awayUntil: 0 });
    this.#healthy.set(member, 0);
  }

  /** Its rollouts choose another one when they next ask. */
  remove(member: M): void {
    this.#standings.delete(member);
    this.#healthy.delete(member);
    for (const [rollout, place] of this.#places) if (place.member === member) this.#places.delete(rollout);
  }

  /**
   * The rollout's member: the one that it has while that is healthy, else the least loaded that `suits`, on which
   * it then lays `load`. Undefined if there is none.
   */
  choose(rollout: string, load: number, suits: (member: M) => boolean = () => true): M | undefined {
    const place = this.#places.get(rollout);
    if (place && this.#healthy.has(place.member) && suits(place.member)) return place.member;
    const member = this.#healthy.first(suits);
    if (member === undefined) return undefined;
    this.release(rollout);
    this.#places.set(rollout, { member, load: 0 });
    this.lay(rollout, load);
    return member;
  }

  /** Changes what a rollout adds to its member's load. */
  lay(rollout: string, load: number): void {
    const place = this.#places.get(rollout);
    const standing = place && this.#standings.get(place.member);
    if (!place || !standing) return;
    standing.load += load - place.load;
    place.load = load;
    if (this.#healthy.has(place.member)) this.#healthy.set(place.member, standing.load);
  }

  /** The rollout is over, or goes elsewhere. */
  release(rollout: string): void {
    this.lay(rollout, 0);
    this.#places.delete(rollout);
  }

  /** Leaves a member alone for a while; what it had goes elsewhere. */
  fail(member: M, now: number): void {
    const standing = this.#standings.get(member);
    // Of many requests that fail at once, the first counts.
    if (!standing || (!this.#healthy.has(member) && now < standing.awayUntil)) return;
    const { firstMs, mostMs } = this.#backOff;
    standing.awayUntil = now + Math.min(mostMs, firstMs * 2 ** standing.failures);
    standing.failures++;
    this.#healthy.delete(member);
  }

  /** Takes a member back that has answered. */
  recover(member: M): void {
    const standing = this.#standings.get(member);
    if (!standing) return;
    standing.failures = 0;
    this.#healthy.set(member, standing.load);
  }

  /** Members that have been left alone long enough and should be asked whether they are back. */
  due(now: number): M[] {
    return this.members.filter((member) => {
      return !this.#healthy.has(member) && now >= (this.#standings.get(member)?.awayUntil ?? Infinity);
    });
  }

  /** When the next one will have been left alone long enough; undefined if all are healthy. */
  nextDue(): number | undefined {
    const times = this.members
      .filter((member) => !this.#healthy.has(member))
      .map((member) => this.#standings.get(member)?.awayUntil ?? 0);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  loadOf(member: M): number {
    return this.#standings.get(member)?.load ?? 0;
  }

  isHealthy(member: M): boolean {
    return this.#healthy.has(member);
  }
}
