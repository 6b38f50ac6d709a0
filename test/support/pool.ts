import { PoolView, type PoolViewOptions } from '../../activities/llm/pool-view.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import type { ModelFacts, PoolMember, PoolState } from '../../contracts/pool.ts';

/** What a server would have been found to serve; most tests do not look at it. */
export const FACTS: ModelFacts = {
  model: 'tiny',
  contextTokens: 64,
  vocabularySize: 12,
  parameterCount: null,
  tokenizerHash: 'sha256:1',
  templateHash: 'sha256:2',
  control: false,
  tellsVersions: false,
  version: null,
};

/** An active member of a pool. */
export function poolMember(server: LlmServer, more: Partial<PoolMember> = {}): PoolMember {
  return {
    server,
    labels: ['policy'],
    state: 'active',
    why: null,
    loading: null,
    facts: FACTS,
    seeded: false,
    ...more,
  };
}

/** The state of a pool that a run worker called `test` is told. */
export function poolState(members: readonly PoolMember[], more: Partial<PoolState> = {}): PoolState {
  return { pool: 'test', epoch: 1, members, floor: 0, leaseSeconds: 1_000, workers: ['test'], ...more };
}

/** A run worker's view of a pool of these servers, under a lease that lasts for the test. */
export function viewOf(servers: readonly LlmServer[], options: PoolViewOptions = {}): PoolView {
  const view = new PoolView('test', options);
  view.take(poolState(servers.map((server) => poolMember(server))), performance.now());
  return view;
}
