import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { Reward } from '../../contracts/trajectory.ts';

/**
 * A reward less the penalty times the share of tool calls that could not be read; as it is without a penalty. Its parts
 * then hold what the grader gave (`graded`) and what was taken (`format`, 0 or less). Pure.
 */
export function shapedByFormat(
  reward: Reward,
  records: readonly LedgerRecord[],
  penalty: number | undefined,
): Reward {
  if (penalty === undefined) return reward;
  const calls = records.flatMap((record) => (record.kind === 'sampled' ? record.calls : []));
  const unread = calls.filter(({ status }) => status !== 'ok').length;
  const format = unread === 0 ? 0 : (-penalty * unread) / calls.length;
  return { total: reward.total + format, parts: { ...reward.parts, graded: reward.total, format } };
}
