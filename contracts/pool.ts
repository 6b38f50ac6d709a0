import type { LlmServer } from './llm.ts';

/*
 * The pool of LLM servers: an entity workflow per pool, `pool:<name>`, is the only one to change it. Run workers
 * ask it for its state and hold that as a lease; see docs/pool.md. Nothing here needs the schemas' library, which
 * workflows must not load; those of the commands are in pool-commands.ts.
 */

/** Workflow type of a pool. */
export const POOL_WORKFLOW = 'llmPool';

/** Workflow id of a pool. */
export function poolWorkflowId(pool: string): string {
  return `pool:${pool}`;
}

/** Query for the {@link PoolState}. */
export const POOL_STATE_QUERY = 'state';

/** Names of the updates, each with its payload in pool-commands.ts and a {@link PoolReport} as its answer. */
export const POOL_UPDATES = ['add', 'remove', 'drain', 'label', 'swap', 'floor'] as const;
export type PoolUpdate = (typeof POOL_UPDATES)[number];

/** Signals of a run worker, by the name of its control queue: it wants the pool's state; it goes. */
export const JOIN_SIGNAL = 'join';
export const LEAVE_SIGNAL = 'leave';
export interface WorkerSignal {
  readonly worker: string;
}

/** Servers of this label sample rollouts; others (`judge`, a precision, a class of hardware) whoever asks for them. */
export const POLICY_LABEL = 'policy';

/** What a server was found to serve when it was added. */
export interface ModelFacts {
  /** The server's own name of it. */
  readonly model: string;
  readonly contextTokens: number;
  /** Null where the server doesn't tell. */
  readonly vocabularySize: number | null;
  readonly parameterCount: number | null;
  /** Of the encodings of a probe text, and of the chat template: equal ones continue each other's tokens. */
  readonly tokenizerHash: string;
  readonly templateHash: string;
  /** It can be paused and load weights. */
  readonly control: boolean;
  /** It tells which tokens of a request which of its versions sampled. */
  readonly tellsVersions: boolean;
  /** Its weights' version in its own words; null where it doesn't tell. */
  readonly version: string | null;
}

/** One server of a pool; its address is its name there. */
export interface PoolMember {
  readonly server: LlmServer;
  readonly labels: readonly string[];
  /** `draining` and `out` begin no request; `out` needs a person or the next swap. */
  readonly state: 'active' | 'draining' | 'out';
  /** Why it is not active. */
  readonly why: string | null;
  /** The version that is being loaded under its requests (a swap in flight); null if none is. */
  readonly loading: number | null;
  readonly facts: ModelFacts;
  /** It came from the configuration, and goes when that no longer names it. */
  readonly seeded: boolean;
}

/** All that is known of a pool. */
export interface PoolState {
  readonly pool: string;
  /** Grows with every change, also over a pool that was made anew. */
  readonly epoch: number;
  readonly members: readonly PoolMember[];
  /** The lowest policy version still wanted: a rollout with an older token is ended. */
  readonly floor: number;
  /** For how long a run worker may act on what it was told, from the moment before it asked. */
  readonly leaseSeconds: number;
  /** Control queues of the run workers that hold a lease. */
  readonly workers: readonly string[];
}

/** What a pool is started with. */
export interface PoolInput {
  readonly pool: string;
  readonly leaseSeconds: number;
  /** Of the workflow run before this one. */
  readonly state?: PoolState;
}

/** The answer of every update: how the pool stands, and what went otherwise than asked. */
export interface PoolReport {
  readonly state: PoolState;
  /** Servers that could not do it, each with the reason; they are not in use. */
  readonly failed: readonly { readonly url: string; readonly why: string }[];
  /** Run workers that did not answer: their leases have run out, so they begin nothing under an older state. */
  readonly silent: readonly string[];
  /** False if requests were still under way on drained servers when the time for them was over. */
  readonly drained: boolean;
}

/** Activities on `rollouts-pool`, taken by any run worker: whoever can reach the servers. */
export interface PoolActivities {
  /** Looks at a server as a rollout would. @throws LlmUnreachable, LlmUnsuitable, LlmRejected, LlmInvalidAnswer */
  probe(input: { readonly server: LlmServer }): Promise<ModelFacts>;
  /**
   * Pauses a server (`abort` ends its requests, `keep` lets them stand), loads weights, drops what it cached of the
   * old ones, and lets it go on.
   */
  loadWeights(input: {
    readonly server: LlmServer;
    readonly folder: string;
    readonly version: number;
    readonly pause: 'abort' | 'keep';
  }): Promise<void>;
}

/** Activities on a run worker's control queue. */
export interface PoolWorkerActivities {
  /** Returns when the worker acts on this epoch or a later one. */
  poolChanged(input: { readonly epoch: number }): Promise<void>;
  /** Returns when the worker has no request under way on these servers. */
  settled(input: { readonly urls: readonly string[] }): Promise<void>;
}

/** The newest version that a pool's servers of a label have; undefined if it has none. */
export function versionOf(
  { members }: Pick<PoolState, 'members'>,
  label: string = POLICY_LABEL,
): number | undefined {
  const versions = members
    .filter(({ labels, state }) => labels.includes(label) && state !== 'out')
    .map(({ server }) => server.policyVersion);
  return versions.length === 0 ? undefined : Math.max(...versions);
}
