import type { GroupStore } from '../../activities/groups/group-store.ts';
import { VERDICTS } from '../../activities/handlers/code/verdict.ts';
import type { TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { BatchResult } from '../../contracts/batch.ts';
import { isFailureType } from '../../contracts/failures.ts';
import type { GroupResult } from '../../contracts/group.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import type { Metrics } from './metrics.ts';
import { wrapped } from './wrapped.ts';

/** What the counts need to know besides the records. */
export interface OutcomeFacts {
  /** The task kinds that there are; others, which anybody may ask for, count as one. */
  readonly kinds: ReadonlySet<string>;
  /** The policy's version now; undefined while it is not known. */
  version(): number | undefined;
}

/** A store that counts terminal records as it makes them: each rollout once, whoever asks how often. */
export function countOutcomes(
  store: TrajectoryStore,
  metrics: Metrics,
  facts: OutcomeFacts,
): TrajectoryStore {
  const count = outcomeCounter(metrics, facts);
  return wrapped(store, {
    putTerminal: async (result) => {
      const stands = await store.putTerminal(result);
      if (stands === result) count(result);
      return stands;
    },
  });
}

function outcomeCounter(metrics: Metrics, { kinds, version }: OutcomeFacts): (result: RolloutResult) => void {
  const ended = metrics.counter('rollouts_ended_total');
  const rewards = metrics.histogram('rollouts_reward');
  const verdicts = metrics.counter('rollouts_test_verdicts_total');
  const truncated = metrics.counter('rollouts_truncated_total');
  const failed = metrics.counter('rollouts_failed_total');
  const retries = metrics.counter('rollouts_retries_total');
  const cancels = metrics.histogram('rollouts_cancel_seconds');
  const parts = metrics.histogram('rollouts_part_seconds');
  const sampledTokens = metrics.histogram('rollouts_sampled_tokens');
  const turns = metrics.histogram('rollouts_turns');
  const staleness = metrics.histogram('rollouts_staleness_versions');
  return (result) => {
    const kind = kindOf(result, kinds);
    const { outcome, reward, truncation, failure, cancel, timings, trajectory, policyVersions } = result;
    ended.inc({ kind, outcome });
    if (reward) rewards.observe({ kind }, reward.total);
    for (const verdict of VERDICTS) {
      const tests = reward?.parts[verdict];
      if (tests) verdicts.inc({ kind, verdict }, tests);
    }
    if (truncation) truncated.inc({ kind, limit: truncation });
    if (failure) failed.inc(named(failure));
    for (const retried of result.retried) retries.inc(named(retried));
    if (cancel) cancels.observe({ reason: cancel.reason }, cancel.ms / 1000);
    const { initMs: init, runMs: run, evaluateMs: evaluate, pausedMs: paused = 0 } = timings;
    const spent = { init, run, evaluate, paused, queue: timings.queueMs, total: timings.totalMs };
    for (const [part, ms] of Object.entries(spent)) parts.observe({ part }, ms / 1000);
    if (trajectory) {
      sampledTokens.observe({ kind }, trajectory.sampledTokens);
      turns.observe({ kind }, trajectory.turns);
    }
    const now = version();
    if (policyVersions && now !== undefined) staleness.observe(Math.max(0, now - policyVersions[0]));
  };
}

/** The label that a result's task kind has: one of those that there are. */
function kindOf({ handler }: { readonly handler: string }, kinds: ReadonlySet<string>): string {
  return kinds.has(handler) ? handler : 'other';
}

function named({ stage, type }: { readonly stage: string; readonly type: string }) {
  return { stage, type: isFailureType(type) ? type : 'Other' };
}

/** A store that counts the results of groups and batches as it makes them. */
export function countGroups(
  groups: GroupStore,
  metrics: Metrics,
  { kinds }: Pick<OutcomeFacts, 'kinds'>,
): GroupStore {
  const verdicts = metrics.counter('rollouts_groups_total');
  const countBatch = batchCounter(metrics);
  return wrapped(groups, {
    putGroup: async (result: GroupResult) => {
      const stands = await groups.putGroup(result);
      const kind = kindOf(result, kinds);
      if (stands === result) verdicts.inc({ kind, verdict: result.verdict });
      return stands;
    },
    putBatch: async (result: BatchResult) => {
      const stands = await groups.putBatch(result);
      if (stands === result) countBatch(result);
      return stands;
    },
  });
}

function batchCounter(metrics: Metrics): (result: BatchResult) => void {
  const batches = metrics.counter('rollouts_batches_total');
  const seconds = metrics.histogram('rollouts_batch_seconds');
  const fates = metrics.counter('rollouts_batch_groups_total');
  const tokens = metrics.gauge('rollouts_batch_sample_tokens');
  return ({ end, startedAt, endedAt, counts, surplus }) => {
    batches.inc({ end });
    seconds.observe((Date.parse(endedAt) - Date.parse(startedAt)) / 1000);
    fates.inc({ fate: 'admitted' }, counts.admitted);
    fates.inc(
      { fate: 'dropped' },
      Object.values(counts.dropped).reduce((total, each) => total + each, 0),
    );
    fates.inc({ fate: 'surplus' }, surplus.length);
    tokens.remove({ fate: 'admitted' });
    tokens.remove({ fate: 'discarded' });
    if (counts.tokensAdmitted !== null) tokens.set({ fate: 'admitted' }, counts.tokensAdmitted);
    if (counts.tokensDiscarded !== null) tokens.set({ fate: 'discarded' }, counts.tokensDiscarded);
  };
}
