import type { NativeConnection } from '@temporalio/worker';
import type { Metrics } from './metrics.ts';

/** Of Temporal's API: TASK_QUEUE_TYPE_WORKFLOW and TASK_QUEUE_TYPE_ACTIVITY. */
const TYPES = { workflow: 1, activity: 2 } as const;
/** Milliseconds that Temporal has to tell of a queue. */
const ASK_MS = 2000;

/** A queue that this process takes from. */
export interface TakenQueue {
  readonly name: string;
  readonly of: 'workflow' | 'activity';
}

/** Tells of what waits in queues. */
export function watchQueues(
  connection: NativeConnection,
  namespace: string,
  queues: readonly TakenQueue[],
  metrics: Metrics,
): void {
  const backlog = metrics.gauge('rollouts_queue_backlog_tasks');
  const age = metrics.gauge('rollouts_queue_backlog_age_seconds');
  const unknown = metrics.gauge('rollouts_queue_unknown');
  const look = async ({ name, of }: TakenQueue) => {
    try {
      const { stats } = await connection.withDeadline(Date.now() + ASK_MS, () =>
        connection.workflowService.describeTaskQueue({
          namespace,
          taskQueue: { name },
          taskQueueType: TYPES[of],
          reportStats: true,
        }),
      );
      backlog.set({ queue: name }, Number(stats?.approximateBacklogCount ?? 0));
      const { seconds = 0, nanos = 0 } = stats?.approximateBacklogAge ?? {};
      age.set({ queue: name }, Number(seconds) + Number(nanos) / 1e9);
      unknown.set({ queue: name }, 0);
    } catch {
      // Told as such: an old number would look like news.
      backlog.remove({ queue: name });
      age.remove({ queue: name });
      unknown.set({ queue: name }, 1);
    }
  };
  metrics.onScrape(async () => {
    await Promise.all(queues.map(look));
  });
}
