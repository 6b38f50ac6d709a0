import type { GroupEnded, RolloutTemplate, Verdict } from './group.ts';
import type { BatchRules, GroupRules } from './group-rules.ts';

/** Workflow type of a batch of groups. */
export const BATCH_WORKFLOW = 'rolloutBatch';
/** Workflow id of a batch. */
export const batchWorkflowId = (batchId: string) => `batch:${batchId}`;

/** Where tasks come from: a set in the store, and how often it is drawn from beside others. */
export interface TaskSource {
  /** Digest of the set. */
  readonly set: string;
  readonly tasks: number;
  readonly weight: number;
  /** What it is called in counts. */
  readonly domain: string;
  /** Tasks that are drawn last: drawing begins after them. None if absent. */
  readonly skip?: number;
}

/** What a batch workflow is started with. */
export interface BatchInput {
  readonly batchId: string;
  readonly sources: readonly TaskSource[];
  readonly rules: BatchRules;
  readonly group: GroupRules;
  readonly template: RolloutTemplate;
  /** Digest of what the caller asked for. */
  readonly digest?: string;
  /** Of the workflow run before this one. */
  readonly state?: BatchState;
}

/** One group of a batch, in the order of the starts. */
export interface BatchGroup {
  readonly groupId: string;
  readonly source: number;
  readonly row: number;
  /** Taken over from the batch before. */
  readonly carried: boolean;
  /** `open`, or how it ended; `stale` if its tokens are too old for this batch. */
  readonly verdict: Verdict | 'open' | 'stale';
  /** Of its tokens; absent while it is open, and if none has a version. */
  readonly oldestVersion?: number;
  readonly rewardMean: number | null;
  readonly tokens: number;
  readonly samples: number;
}

/** What happened in a batch; numbered from 1, so that a reader goes on where it was. */
export interface BatchEvent {
  readonly number: number;
  readonly at: string;
  readonly kind: 'started' | 'admitted' | 'dropped' | 'ended';
  /** Of `started`, `admitted` and `dropped`. */
  readonly groupId?: string;
  /** Why it was dropped, or how the batch ended. */
  readonly why?: string;
}

/** All that a batch knows; carried over to the next workflow run of it. */
export interface BatchState {
  /** Groups wanted, after the adaptation. */
  readonly wanted: number;
  /** Oldest policy version that a group's tokens may have. */
  readonly oldestVersion: number;
  readonly groups: readonly BatchGroup[];
  /** Groups at the front of the order that have been decided on. */
  readonly decided: number;
  /** Ids of groups of the batch, in the order of the starts. */
  readonly admitted: readonly string[];
  /** By source: tasks drawn, in rounds over all its rows; and what its weight has saved up. */
  readonly drawn: readonly number[];
  readonly credit: readonly number[];
  readonly events: readonly BatchEvent[];
  readonly startedAt: string;
}

/** Why a batch ended: full, or with fewer groups than wanted. */
export type BatchEnd = 'full' | 'exhausted' | 'deadline' | 'cancelled';

/** How a batch ended; kept in the store. */
export interface BatchResult {
  readonly schemaVersion: 1;
  readonly batchId: string;
  /** Of what the caller asked for. */
  readonly digest: string | null;
  readonly end: BatchEnd;
  readonly wanted: number;
  /** Groups of the batch, in the order of their starts. */
  readonly groups: readonly string[];
  /** Groups that were left over and are kept for the next batch. */
  readonly surplus: readonly string[];
  readonly counts: BatchCounts;
  /** Tasks drawn from each source; the next batch skips so many more. Absent in results of older versions. */
  readonly drawn?: readonly number[];
  readonly startedAt: string;
  readonly endedAt: string;
}

/** What became of a batch's groups. */
export interface BatchCounts {
  readonly started: number;
  readonly carried: number;
  readonly open: number;
  readonly admitted: number;
  /** By verdict. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly byDomain: Readonly<Record<string, { readonly started: number; readonly admitted: number }>>;
  /** Mean tokens of a sample, of groups that were admitted and of those that were not. */
  readonly tokensAdmitted: number | null;
  readonly tokensDiscarded: number | null;
  /** Over all groups that ended with rewards, dropped ones included. */
  readonly rewardMean: number | null;
}

/** Query of a batch: how it stands. */
export const BATCH_STATUS_QUERY = 'batchStatus';
export interface BatchStatus {
  readonly batchId: string;
  readonly end: BatchEnd | null;
  readonly wanted: number;
  readonly admitted: readonly string[];
  readonly counts: BatchCounts;
  readonly events: number;
}
/** Query of a batch: the events after a number. */
export const BATCH_EVENTS_QUERY = 'batchEvents';

/** Signal to a batch: the lowest policy version still wanted, from now on. */
export const FLOOR_SIGNAL = 'floor';
export interface FloorSignal {
  readonly version: number;
}

/** Activities of batches, on `rollouts-records`. */
export interface BatchActivities {
  /** Rollouts that ended in the last 10 minutes; the policy's version, null if no server is there, and the pool's floor. */
  surroundings(): Promise<{
    readonly ended: number;
    readonly version: number | null;
    readonly floor: number;
  }>;
  /**
   * Takes over what a batch left, once: another that asks later gets none of it. Not `ended`: it is still under way. One
   * that there is not has left nothing.
   */
  takeSurplus(input: {
    readonly from: string;
    readonly to: string;
  }): Promise<{ readonly groups: string[]; readonly ended: boolean }>;
  /** What the store knows of groups whose report did not come. */
  lookUpGroups(input: { readonly groupIds: readonly string[] }): Promise<GroupEnded[]>;
  /** Keeps a batch's result; the one that stands is returned. */
  keepBatch(input: { readonly result: BatchResult }): Promise<BatchResult>;
}
