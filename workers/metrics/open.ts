import { Client } from '@temporalio/client';
import type { NativeConnection } from '@temporalio/worker';
import { visibilityQuery } from '../../contracts/filter.ts';
import type { Metrics } from './metrics.ts';

/** Milliseconds that Temporal has to count. */
const ASK_MS = 2000;
/** Values of the search attribute `Stage` while a rollout is open. */
const STAGES = ['queued', 'init', 'run', 'paused', 'evaluate'];

/** Tells how many rollouts are open. */
export function watchOpen(connection: NativeConnection, namespace: string, metrics: Metrics): void {
  const client = new Client({ connection, namespace });
  const open = metrics.gauge('rollouts_open');
  const count = async (stage: string) => {
    const query = `${visibilityQuery({ stage })} AND ExecutionStatus = 'Running'`;
    try {
      open.set({ stage }, (await client.workflow.count(query)).count);
    } catch {
      open.remove({ stage }); // told by its absence: an old number would look like news
    }
  };
  metrics.onScrape(() =>
    client.withDeadline(Date.now() + ASK_MS, async () => {
      await Promise.all(STAGES.map(count));
    }),
  );
}
