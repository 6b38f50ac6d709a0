import { WorkflowNotFoundError } from '@temporalio/client';
import { GroupStore } from '../../activities/groups/group-store.ts';
import type { Config } from '../../config/load.ts';
import type { BatchCounts } from '../../contracts/batch.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { CancelReason } from '../../contracts/request.ts';
import { GroupClient } from '../groups.ts';
import { type Output, tableOf } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';

/** `rollouts batch show`: how a batch stands, or its result. */
export function showBatch(config: Config, batchId: string, output: Output): Promise<number> {
  return withGroups(config, batchId, async (groups) => {
    const result = await groups.batchResult(batchId);
    if (result) {
      output.result(result, () => textOf(result.end, result.groups, result.wanted, result.counts));
      return;
    }
    const status = await groups.batchStatus(batchId);
    output.result(status, () => textOf('open', status.admitted, status.wanted, status.counts));
  });
}

/** `rollouts batch cancel`: ends a batch and all that it has begun. */
export function cancelBatch(
  config: Config,
  batchId: string,
  reason: CancelReason,
  output: Output,
): Promise<number> {
  return withGroups(config, batchId, async (groups) => {
    await groups.cancel('batch', batchId, reason);
    output.result({ batchId, reason }, () => `${batchId} told to end (${reason})`);
  });
}

/** Does something with groups and batches over a connection of its own. @returns 0 */
export async function withGroups(
  config: Config,
  batchId: string,
  work: (groups: GroupClient, store: GroupStore) => Promise<void>,
): Promise<number> {
  const client = await RolloutClient.connect(config);
  const store = new GroupStore(config.derived.storeFolder);
  try {
    await work(new GroupClient(client.temporal, store), store);
    return 0;
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error;
    throw new RolloutError('InvalidRequest', `there is no batch ${batchId}`, { cause: error });
  } finally {
    await client.close();
  }
}

function textOf(end: string, groups: readonly string[], wanted: number, counts: BatchCounts): string {
  const number = (value: number | null) => (value === null ? '-' : value.toFixed(2));
  const dropped = Object.entries(counts.dropped).map(([verdict, count]) => `${count} ${verdict}`);
  return tableOf(
    ['', ''],
    Object.entries({
      batch: end,
      groups: `${groups.length} of ${wanted}`,
      begun: `${counts.started}, ${counts.carried} taken over, ${counts.open} open`,
      dropped: dropped.join(', ') || '-',
      'mean reward': number(counts.rewardMean),
      'tokens of a sample': `${number(counts.tokensAdmitted)}, of discarded ones ${number(counts.tokensDiscarded)}`,
    }),
  );
}
