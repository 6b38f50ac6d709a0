import type { Client, WorkflowHandle } from '@temporalio/client';
import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import { FAILURES, type Stage } from '../contracts/failures.ts';
import { recordIdentity, recordTimings } from '../contracts/record.ts';
import { RolloutRequest } from '../contracts/request.ts';
import type { RolloutResult } from '../contracts/result.ts';
import type { AttemptInput, Placement } from '../contracts/stages.ts';

type Event = NonNullable<Awaited<ReturnType<WorkflowHandle['fetchHistory']>>['events']>[number];

/**
 * The record of a rollout that was closed from outside (terminated, timed out) and so could write none:
 * failed, `Terminated`, with what its history knows.
 * @throws if Temporal does not answer or no longer has the history.
 */
export async function closedRollout(
  client: Client,
  rolloutId: string,
  message: string,
): Promise<{ request: RolloutRequest; result: RolloutResult }> {
  const handle = client.workflow.getHandle(rolloutId);
  const { runId, startTime, closeTime } = await handle.describe();
  const events = (await handle.fetchHistory()).events ?? [];
  const { input } = events[0]?.workflowExecutionStartedEventAttributes ?? {};
  const request = RolloutRequest.parse(read(input?.payloads));
  const [startedAt, endedAt] = [startTime.toISOString(), (closeTime ?? new Date()).toISOString()];
  const { stage, attempt, placement } = lastStage(events);
  const result: RolloutResult = {
    ...recordIdentity(request, runId),
    outcome: 'failed',
    reward: null,
    truncation: null,
    cancel: null,
    failure: { type: 'Terminated', stage, cause: FAILURES.Terminated.cause, message, attempt },
    retried: [],
    attempt,
    host: placement?.host ?? null,
    backend: placement?.backend ?? null,
    policyVersions: null,
    trajectory: null,
    startedAt,
    endedAt,
    timings: recordTimings(startedAt, endedAt, { initMs: placement?.ms ?? 0, runMs: 0, evaluateMs: 0 }),
  };
  return { request, result };
}

/** Where a rollout was, by the stages that were scheduled. */
function lastStage(events: readonly Event[]) {
  let [stage, attempt]: [Stage, number] = ['queued', 0];
  let placement: Placement | undefined;
  const inits = new Set<string>();
  for (const {
    eventId,
    activityTaskScheduledEventAttributes: scheduled,
    activityTaskCompletedEventAttributes: done,
  } of events) {
    const name = scheduled?.activityType?.name;
    if (name === 'init' || name === 'run' || name === 'evaluate') {
      stage = name;
      attempt = read<AttemptInput>(scheduled?.input?.payloads).attempt;
      if (name === 'init') inits.add(String(eventId));
    }
    if (inits.has(String(done?.scheduledEventId))) placement = read<Placement>(done?.result?.payloads);
  }
  return { stage, attempt, placement };
}

function read<T>(payloads: readonly Payload[] | null | undefined): T {
  return defaultPayloadConverter.fromPayload(payloads?.[0] as Payload);
}
