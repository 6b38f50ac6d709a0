import { setTimeout as delay } from 'node:timers/promises';
import type { PoolView } from '../activities/llm/pool-view.ts';
import { AgentLimit } from './agent-limit.ts';
import { hostsOf } from './pool/worker-name.ts';

/** How often servers are asked how much they have to do, and the time that they have to answer. */
const LOOK_EVERY_MS = 1000;

/** What pacing goes by. */
export interface PacingOptions {
  readonly view: Pick<PoolView, 'serverLoads' | 'lease'>;
  /** Of the servers that rollouts are sampled on. */
  readonly label: string;
  /** Sandboxes of agents on this host; undefined while it does not say. */
  agents(): Promise<number | undefined>;
}

/** Keeps an eye on the LLM servers and says how many agents this host lets there be for them. */
export class LlmPacing {
  readonly #limit = new AgentLimit();
  readonly #closing = new AbortController();
  readonly #options: PacingOptions;
  #looking: Promise<void> | undefined;

  constructor(options: PacingOptions) {
    this.#options = options;
  }

  get most(): number {
    return this.#limit.most;
  }

  start(): void {
    this.#looking = this.#watch();
  }

  async stop(): Promise<void> {
    this.#closing.abort();
    await this.#looking;
  }

  async #watch(): Promise<void> {
    const { signal } = this.#closing;
    while (await delay(LOOK_EVERY_MS, true, { signal }).catch(() => false)) await this.#look();
  }

  async #look(): Promise<void> {
    const { view, label, agents } = this.#options;
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(LOOK_EVERY_MS)]);
    const [told, own] = await Promise.all([view.serverLoads(signal, label), agents()]);
    if (own === undefined) return;
    if (told.length === 0) return this.#limit.look(undefined);
    this.#limit.look({
      running: told.reduce((sum, { load }) => sum + load.running, 0),
      waiting: told.reduce((sum, { load }) => sum + load.waiting, 0),
      agents: own,
      hosts: Math.max(1, hostsOf(view.lease.state?.workers ?? []).size),
    });
  }
}
