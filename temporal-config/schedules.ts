import { type Client, ScheduleAlreadyRunning, ScheduleOverlapPolicy } from '@temporalio/client';
import { WORKFLOW_QUEUE } from '../contracts/queues.ts';
import { CLOSED_SWEEP_WORKFLOW } from '../contracts/sweep.ts';

/** How often rollouts that were closed from outside are looked for. */
const EVERY = '5m';

/** Creates the schedules of a namespace that are missing; those that are there stay as they are. */
export async function registerSchedules(client: Client): Promise<void> {
  try {
    await client.schedule.create({
      scheduleId: 'rollouts-closed-sweep',
      spec: { intervals: [{ every: EVERY }] },
      // One that was missed finds nothing that the next would not.
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: '1m' },
      action: {
        type: 'startWorkflow',
        workflowType: CLOSED_SWEEP_WORKFLOW,
        taskQueue: WORKFLOW_QUEUE,
        args: [],
      },
    });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
  }
}
