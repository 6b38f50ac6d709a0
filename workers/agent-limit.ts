/** What is seen of the LLM servers and of one host at one moment. */
export interface Sight {
  /** Requests that the servers work on, and that wait there, of all their callers. */
  readonly running: number;
  readonly waiting: number;
  /** Sandboxes of agents on this host: those in init, those to be made, and those that work. */
  readonly agents: number;
  /** Hosts whose agents ask these servers. */
  readonly hosts: number;
}

/** Looks over which is averaged: servers' queues come and go within a turn. */
const SMOOTHING = 10;
/**
 * Requests that are to wait, over the square root of those that are worked on. As agents come and go by chance, so many in
 * reserve keep servers of any size full; a part of their size would be too few for a small one and a queue at a large.
 */
const RESERVE = 1.5;
/** Looks without a word of any server after which nothing is known any more. */
const FORGET = 60;

/**
 * How many agents a host lets there be, so that the LLM servers are full and few requests wait there. Agents that do
 * not wait for a server are as many as it takes to keep the servers busy, those in init and at their tools included:
 * so there may be as many, averaged, and a reserve. While nothing waits at the servers that is more than there are, and the number rises by
 * the reserve; while too many wait it is less. Each host takes its part of what waits, so hosts need not know of each
 * other. Pure; looked at regularly.
 */
export class AgentLimit {
  #most = Number.POSITIVE_INFINITY;
  /** Agents of this host that it takes, averaged. */
  #taken: number | undefined;
  #silent = 0;

  /** Infinity as long as nothing says that there are too many; at least 1. */
  get most(): number {
    return this.#most;
  }

  /** Undefined: no server tells how much it has to do. */
  look(sight: Sight | undefined): void {
    this.#silent = sight ? 0 : this.#silent + 1;
    if (this.#silent === FORGET) {
      this.#most = Number.POSITIVE_INFINITY;
      this.#taken = undefined;
    }
    if (!sight) return;
    const { running, waiting, agents, hosts } = sight;
    const reserve = RESERVE * Math.sqrt(Math.max(1, running));
    // Not many wait, and it is not this that holds others back: a pause between batches says nothing.
    if (waiting <= reserve && agents < this.#most) return;
    const taken = agents - waiting / hosts;
    this.#taken = this.#taken === undefined ? taken : this.#taken + (taken - this.#taken) / SMOOTHING;
    this.#most = Math.max(1, Math.ceil(this.#taken + reserve / hosts));
  }
}
