import {
  allHandlersFinished,
  condition,
  continueAsNew,
  defineUpdate,
  proxyActivities,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import { LOOK_UPDATE, type LookInput } from '../contracts/look.ts';
import { controlQueue } from '../contracts/queues.ts';
import type { HostActivities } from '../contracts/stages.ts';

/**
 * Whoever follows open rollouts asks their hosts through this one workflow: a host takes work from Temporal alone, and the
 * rollout's own history is not the place for its readers.
 */
export async function lookout(): Promise<void> {
  setHandler(defineUpdate<void, [LookInput]>(LOOK_UPDATE), look);
  await condition(() => workflowInfo().continueAsNewSuggested);
  await condition(allHandlersFinished);
  await continueAsNew<typeof lookout>();
}

async function look({ host, ...key }: LookInput): Promise<void> {
  const { copySoFar } = proxyActivities<HostActivities>({
    taskQueue: controlQueue(host),
    // Somebody waits for it, who asks again: of a host that is away he is to hear soon.
    scheduleToStartTimeout: '3s',
    startToCloseTimeout: '8s',
    retry: { maximumAttempts: 1 },
    summary: key.rolloutId,
  });
  await copySoFar(key);
}
