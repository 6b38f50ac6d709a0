import {
  ApplicationFailure,
  allHandlersFinished,
  condition,
  continueAsNew,
  defineUpdate,
  log,
  proxyActivities,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import { controlQueue, RECORDS_QUEUE } from '../contracts/queues.ts';
import { CANCEL_MANY_UPDATE } from '../contracts/signals.ts';
import type { HostActivities } from '../contracts/stages.ts';
import type { SweepActivities, SweepInput, SweepReport } from '../contracts/sweep.ts';
import { cancelProblem } from './guards.ts';

/**
 * Ends many rollouts at once, whenever it is asked to. It is one workflow that stays, since the start of a new
 * one would take the longest part of a sweep's way to the hosts.
 */
export async function cancelSweeper(): Promise<void> {
  setHandler(defineUpdate<SweepReport, [SweepInput]>(CANCEL_MANY_UPDATE), sweep, {
    validator: (input) => {
      const problem = cancelProblem(input);
      if (problem) throw ApplicationFailure.nonRetryable(problem, 'InvalidRequest');
    },
  });
  await condition(() => workflowInfo().continueAsNewSuggested);
  await condition(allHandlersFinished);
  await continueAsNew<typeof cancelSweeper>();
}

/**
 * One command per host frees its LLM requests and sandboxes, which one signal per rollout could not do as fast;
 * the rollouts end by their run stage's own answer. What no host knew is then told by signal. The terminal
 * records are the same either way.
 */
async function sweep({ selection, reason, hosts }: SweepInput): Promise<SweepReport> {
  const answers = await Promise.allSettled(
    hosts.map((host) => onHost(host).abortMany({ selection, reason })),
  );
  const silentHosts = hosts.filter((_, index) => answers[index]?.status === 'rejected');
  if (silentHosts.length > 0) log.warn('hosts did not answer', { silentHosts });
  const answered = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  const aborted = answered.flatMap(({ rolloutIds }) => rolloutIds);
  // A host of an earlier version has no such word.
  const unheld = answered.flatMap((answer) => answer.unheld ?? []);
  const { signalled } = await records.signalRest({ selection, reason, aborted, unheld });
  return { aborted: aborted.length, signalled, silentHosts };
}

/** A sweep must not wait for a host that is down: what ran there has ended with it. */
function onHost(host: string): HostActivities {
  return proxyActivities<HostActivities>({
    taskQueue: controlQueue(host),
    scheduleToStartTimeout: '3s',
    startToCloseTimeout: '8s',
    retry: { maximumAttempts: 2 },
    summary: host,
  });
}

const records = proxyActivities<SweepActivities>({
  taskQueue: RECORDS_QUEUE,
  startToCloseTimeout: '10m',
  heartbeatTimeout: '30s',
  retry: { maximumInterval: '10s' },
});

/** Keeps a terminal record of what was terminated, so that every accepted rollout has one. */
export async function closedSweep(): Promise<{ recorded: number }> {
  return records.recordClosed();
}
