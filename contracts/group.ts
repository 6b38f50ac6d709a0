import type { FailureType } from './failures.ts';
import type { GroupRules } from './group-rules.ts';
import type { CancelReason, RolloutRequest } from './request.ts';
import type { Outcome, RolloutResult } from './result.ts';
import type { Truncation } from './trajectory.ts';

/** Workflow type of all samples of one task. */
export const GROUP_WORKFLOW = 'rolloutGroup';
/** Workflow id of a group. */
export const groupWorkflowId = (groupId: string) => `group:${groupId}`;

/** Signal of a rollout to whom its request names in `reportTo`, once: how it ended. */
export const ROLLOUT_ENDED_SIGNAL = 'rolloutEnded';
export interface RolloutEnded {
  readonly rolloutId: string;
  readonly outcome: Outcome;
  readonly reward: number | null;
  readonly truncated: Truncation | null;
  readonly cancelled: CancelReason | null;
  readonly failure: FailureType | null;
  /** Oldest and newest policy version among its sampled tokens. */
  readonly versions: readonly [number, number] | null;
  /** Tokens after the prompt. */
  readonly tokens: number;
}

/** What a group hears of a terminal record. */
export function endOf(result: RolloutResult): RolloutEnded {
  const { rolloutId, outcome, reward, truncation, cancel, failure, policyVersions, trajectory } = result;
  return {
    rolloutId,
    outcome,
    reward: reward?.total ?? null,
    truncated: truncation,
    cancelled: cancel?.reason ?? null,
    failure: failure?.type ?? null,
    versions: policyVersions,
    tokens: trajectory?.outputTokens ?? 0,
  };
}

/** A task by its place: a set of tasks in the store, by its digest, and its row there, from 0. */
export interface TaskPlace {
  readonly set: string;
  readonly row: number;
}

/** A request without what each rollout has of its own. */
export type RolloutTemplate = Omit<
  RolloutRequest,
  'rolloutId' | 'task' | 'sample' | 'groupId' | 'batchId' | 'digest' | 'reportTo'
>;

/** What a group workflow is started with. */
export interface GroupInput {
  readonly groupId: string;
  readonly batchId?: string;
  readonly task: TaskPlace;
  readonly rules: GroupRules;
  readonly template: RolloutTemplate;
  /** Workflow id that hears how it ended. */
  readonly reportTo?: string;
  /** Digest of what the caller asked for. */
  readonly digest?: string;
}

/** One sample of a group that has ended. */
export interface GroupSample extends RolloutEnded {
  /** The reward with what overlong samples cost; null without a reward. */
  readonly shaped: number | null;
  /** False: it has no reward, or is not to be trained on. */
  readonly train: boolean;
}

/** Why a group is of use or not: equal rewards give no gradient. */
export type Verdict =
  | 'useful'
  | 'allZero'
  | 'allOne'
  | 'allEqual'
  | 'incomplete'
  | 'mixedVersions'
  | 'cancelled';

/** How a group ended; kept in the store. */
export interface GroupResult {
  readonly schemaVersion: 1;
  readonly groupId: string;
  /** Of what the caller asked for. */
  readonly digest: string | null;
  readonly batchId: string | null;
  readonly taskId: string;
  readonly handler: string;
  readonly verdict: Verdict;
  /** Mean of the shaped rewards of those that count; null if none does. */
  readonly rewardMean: number | null;
  /** Samples that count, and their tokens after the prompt. */
  readonly counted: number;
  readonly tokens: number;
  /** By number; those that were replaced are among them. */
  readonly samples: readonly GroupSample[];
  readonly replaced: number;
  /** Why rollouts could not be begun; null if they could. */
  readonly problem: string | null;
  /** Oldest and newest policy version of all samples with a reward. */
  readonly versions: readonly [number, number] | null;
  readonly startedAt: string;
  readonly endedAt: string;
}

/** Signal of a group to its batch: what the batch decides by. */
export const GROUP_ENDED_SIGNAL = 'groupEnded';
export interface GroupEnded {
  readonly groupId: string;
  readonly verdict: Verdict;
  readonly versions: readonly [number, number] | null;
  readonly rewardMean: number | null;
  /** Tokens of its samples with a reward. */
  readonly tokens: number;
  readonly samples: number;
}

/** Signal to a group: another batch hears of its end. */
export const ADOPT_SIGNAL = 'adopt';
export interface AdoptSignal {
  readonly reportTo: string;
}

/** What a batch hears of a group's result. */
export function reportOf(result: GroupResult): GroupEnded {
  const { groupId, verdict, versions, rewardMean, tokens, counted } = result;
  return { groupId, verdict, versions, rewardMean, tokens, samples: counted };
}

/** Query of a group: what is known of it so far. */
export const GROUP_STATUS_QUERY = 'groupStatus';
export interface GroupStatus {
  readonly groupId: string;
  readonly open: number;
  readonly ended: readonly RolloutEnded[];
}

/** Activities of groups and batches, on `rollouts-records`. */
export interface GroupActivities {
  /** Begins rollouts of a group by number; those that are known are not begun again. @throws InvalidTask */
  beginRollouts(input: {
    readonly group: GroupInput;
    readonly numbers: readonly number[];
  }): Promise<{ readonly taskId: string; readonly handler: string }>;
  /** What the store knows of rollouts whose report did not come. */
  lookUpRollouts(input: { readonly rolloutIds: readonly string[] }): Promise<RolloutEnded[]>;
  /** Keeps a group's result; the one that stands is returned. */
  keepGroup(input: { readonly result: GroupResult }): Promise<GroupResult>;
}
