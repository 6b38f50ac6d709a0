import type { GroupSample, RolloutEnded, Verdict } from '../contracts/group.ts';
import type { GroupRules, Overlong } from '../contracts/group-rules.ts';

/*
 * What the samples of a group are worth together. Pure.
 */

/** A sample as the trainer takes it. */
export function judged(sample: RolloutEnded, overlong: Overlong): GroupSample {
  const { reward, truncated, tokens } = sample;
  if (reward === null) return { ...sample, shaped: null, train: false };
  if (overlong.mode === 'penalty') {
    const { maxTokens, cache } = overlong;
    const cost = Math.min(1, Math.max(0, (tokens - (maxTokens - cache)) / cache));
    return { ...sample, shaped: reward - cost, train: true };
  }
  return { ...sample, shaped: reward, train: truncated === null || overlong.mode === 'keep' };
}

/** Samples that make up the group: those with a reward, unless overlong ones are dropped. */
function counted(samples: readonly GroupSample[], { overlong }: GroupRules): readonly GroupSample[] {
  return samples.filter(
    ({ reward, truncated }) => reward !== null && (overlong.mode !== 'drop' || truncated === null),
  );
}

/** Rewards that are equal within this are equal: sums of parts differ in their last digits. */
const EQUAL = 1e-9;

/** What a group is good for. */
export function verdictOf(samples: readonly GroupSample[], rules: GroupRules, cancelled: boolean): Verdict {
  if (cancelled) return 'cancelled';
  const those = counted(samples, rules);
  if (those.length < (rules.minSamples ?? rules.samples)) return 'incomplete';
  const versions = versionsOf(those);
  if (rules.uniformVersion && versions && versions[0] !== versions[1]) return 'mixedVersions';
  const rewards = those.map(({ shaped }) => shaped as number);
  const first = rewards[0] as number;
  if (rewards.some((reward) => Math.abs(reward - first) > EQUAL)) return 'useful';
  if (Math.abs(first) <= EQUAL) return 'allZero';
  return Math.abs(first - 1) <= EQUAL ? 'allOne' : 'allEqual';
}

/** Oldest and newest policy version of the samples that have any. */
export function versionsOf(samples: readonly RolloutEnded[]): [number, number] | null {
  const all = samples.flatMap(({ reward, versions }) => (reward === null || !versions ? [] : [versions]));
  if (all.length === 0) return null;
  return [Math.min(...all.map(([oldest]) => oldest)), Math.max(...all.map(([, newest]) => newest))];
}

/** Whether another sample may take this one's place: nobody wanted its end, and another may fare better. */
export function isReplaceable({ outcome, cancelled, failure }: RolloutEnded): boolean {
  if (outcome === 'cancelled') return cancelled === 'stale';
  // A task that is wrong is wrong for every sample.
  return outcome === 'failed' && failure !== 'InvalidTask' && failure !== 'InvalidRequest';
}

/** What a result says of all samples together. */
export function totalsOf(samples: readonly GroupSample[], rules: GroupRules) {
  const those = counted(samples, rules);
  const sum = (value: (sample: GroupSample) => number) =>
    those.reduce((total, sample) => total + value(sample), 0);
  return {
    rewardMean: those.length === 0 ? null : sum(({ shaped }) => shaped as number) / those.length,
    counted: those.length,
    tokens: sum(({ tokens }) => tokens),
    versions: versionsOf(samples),
  };
}
