import type { LabelledServers } from '../../activities/grading/judge-model.ts';
import type { PoolView } from '../../activities/llm/pool-view.ts';
import type { OpenPolicy, PolicySource } from '../../activities/run.ts';
import { type PoolState, versionOf } from '../../contracts/pool.ts';
import type { Metrics } from './metrics.ts';

/** Milliseconds within which a server has to say how much it has to do. */
const ASK_MS = 1500;
/** Milliseconds after which what was counted of a server that nobody asks any more is told no longer: each swap may bring new ones. */
const FORGET_MS = 3_600_000;
const FINISHES = ['stop', 'length', 'abort', 'error'];

/** Gives out the pool's servers, and counts and times what is asked of them. */
export function countRequests(
  source: PolicySource,
  metrics: Metrics,
  forgetMs = FORGET_MS,
): PolicySource & LabelledServers {
  const requests = metrics.counter('rollouts_llm_requests_total');
  const seconds = metrics.histogram('rollouts_llm_request_seconds');
  const sent = metrics.counter('rollouts_llm_prompt_tokens_total');
  const came = metrics.counter('rollouts_llm_sampled_tokens_total');
  const opened = metrics.histogram('rollouts_llm_open_seconds');
  const waiting = metrics.gauge('rollouts_llm_waiting');
  const lastAsked = new Map<string, number>();
  metrics.onScrape(() => {
    for (const [server, at] of lastAsked) {
      if (performance.now() - at <= forgetMs) continue;
      lastAsked.delete(server);
      for (const finish of FINISHES) requests.remove({ server, finish });
      for (const metric of [seconds, sent, came]) metric.remove({ server });
    }
  });
  return {
    open: async (name: string, options: OpenPolicy) => {
      const asked = performance.now();
      const onWaiting = (waits: boolean) => {
        if (waits) waiting.inc();
        else waiting.dec();
        options.onWaiting?.(waits);
      };
      const policy = await source.open(name, { ...options, onWaiting });
      opened.observe((performance.now() - asked) / 1000);
      const generate = policy.generate.bind(policy);
      return Object.assign(policy, {
        generate: async (...[request, signal]: Parameters<typeof generate>) => {
          const began = performance.now();
          try {
            const sampled = await generate(request, signal);
            const { server, finish, ids } = sampled;
            lastAsked.set(server, performance.now());
            requests.inc({ server, finish });
            seconds.observe({ server }, (performance.now() - began) / 1000);
            sent.inc({ server }, request.promptIds.length);
            came.inc({ server }, ids.length);
            return sampled;
          } catch (error) {
            requests.inc({ server: 'none', finish: 'error' });
            throw error;
          }
        },
      });
    },
  };
}

/** Tells of the pool as this process knows it, and of what its servers say. */
export class PoolWatch {
  readonly #metrics: Metrics;
  #newest: number | undefined;

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
  }

  /** To be told of every state of the pool that this process acts on. */
  readonly changed = (state: PoolState): void => {
    const known = versionOf(state);
    if (known === undefined) return;
    if (this.#newest !== undefined && known > this.#newest)
      this.#metrics.counter('rollouts_weight_swaps_total').inc();
    this.#newest = Math.max(this.#newest ?? known, known);
  };

  watch(view: PoolView): void {
    const metrics = this.#metrics;
    const servers = metrics.gauge('rollouts_llm_servers');
    const up = metrics.gauge('rollouts_llm_server_up');
    const requests = metrics.gauge('rollouts_llm_server_requests');
    metrics.onScrape(async () => {
      const { state } = view.lease;
      metrics.gauge('rollouts_pool_lease').set(view.lease.isLive(performance.now()) ? 1 : 0);
      for (const gauge of [servers, up, requests]) gauge.reset();
      if (!state) return;
      metrics.gauge('rollouts_policy_floor').set(state.floor);
      const known = versionOf(state);
      if (known !== undefined) metrics.gauge('rollouts_policy_version').set(known);
      for (const each of ['active', 'draining', 'out']) servers.set({ state: each }, 0);
      for (const member of state.members) servers.inc({ state: member.state });
      for (const { url, healthy } of view.loads) up.set({ server: url }, healthy ? 1 : 0);
      for (const { url, load } of await view.serverLoads(AbortSignal.timeout(ASK_MS))) {
        requests.set({ server: url, state: 'running' }, load.running);
        requests.set({ server: url, state: 'waiting' }, load.waiting);
      }
    });
  }
}
