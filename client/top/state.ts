import type { HostState } from '../hosts.ts';

/** What was asked for, or why there is no answer: parts of a service may be down. */
export type Part<T> = { readonly value: T } | { readonly problem: string };

/** How a service stands, as `rollouts top` shows it. */
export interface TopState {
  /** ISO 8601. */
  readonly at: string;
  readonly temporal: string;
  readonly rollouts: Part<RolloutCounts>;
  readonly queues: Part<readonly QueueState[]>;
  readonly hosts: Part<readonly HostState[]>;
  readonly pool: Part<PoolSummary>;
  readonly batches: Part<readonly BatchSummary[]>;
}

/** Minutes over which outcomes are counted. */
export const MINUTES = 10;

/** Rollouts by stage, as lists have it (a moment late), and those that ended in the last minutes. */
export interface RolloutCounts {
  readonly stages: Readonly<Record<'queued' | 'run' | 'paused' | 'evaluate', number>>;
  /** In the last {@link MINUTES} minutes; `other`: closed from outside, with no outcome yet. */
  readonly ended: Readonly<Record<'completed' | 'truncated' | 'cancelled' | 'failed' | 'other', number>>;
  readonly endedInLastMinute: number;
}

/** A task queue as Temporal describes it. */
export interface QueueState {
  readonly queue: string;
  /** Tasks that wait, approximately, and for how long the oldest has. */
  readonly waiting: number;
  readonly oldestSeconds: number;
  /** Tasks per second that come and are taken. */
  readonly inPerSecond: number;
  readonly outPerSecond: number;
  /** Processes that asked for its tasks in the last two minutes. */
  readonly workers: number;
}

/** The LLM servers. */
export interface PoolSummary {
  readonly pool: string;
  readonly floor: number;
  readonly runWorkers: number;
  readonly servers: readonly ServerState[];
}
export interface ServerState {
  readonly url: string;
  readonly dialect: string;
  readonly labels: readonly string[];
  readonly version: number;
  readonly state: string;
  readonly why: string | null;
  /** Requests there, of all its callers; null where the server does not tell. */
  readonly load: Part<{ readonly running: number; readonly waiting: number } | null>;
}

/** An open batch. */
export interface BatchSummary {
  readonly batchId: string;
  readonly status: Part<{
    readonly admitted: number;
    readonly wanted: number;
    readonly open: number;
    readonly dropped: number;
    readonly rewardMean: number | null;
  }>;
}
