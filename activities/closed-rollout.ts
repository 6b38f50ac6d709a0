import type { Client, WorkflowHandle } from '@temporalio/client';
import type { Payload } from '@temporalio/common';
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
  const read = readerOf(client);
  const { input } = events[0]?.workflowExecutionStartedEventAttributes ?? {};
  const request = RolloutRequest.parse(await read(input?.payloads));
  const [startedAt, endedAt] = [startTime.toISOString(), (closeTime ?? new Date()).toISOString()];
  const { stage, attempt, placement } = await lastStage(events, read);
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
async function lastStage(events: readonly Event[], read: Read) {
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
      attempt = ((await read(scheduled?.input?.payloads)) as AttemptInput).attempt;
      if (name === 'init') inits.add(String(eventId));
    }
    if (inits.has(String(done?.scheduledEventId))) {
      placement = (await read(done?.result?.payloads)) as Placement;
    }
  }
  return { stage, attempt, placement };
}

/** The value of an event's first payload. */
type Read = (payloads: readonly Payload[] | null | undefined) => Promise<unknown>;

/** A history comes as it is kept; only the client knows how its payloads were written. */
function readerOf(client: Client): Read {
  const { payloadCodecs, payloadConverter } = client.options.loadedDataConverter;
  return async (payloads) => {
    let decoded = payloads?.slice(0, 1) ?? [];
    for (const codec of payloadCodecs.toReversed()) decoded = await codec.decode(decoded);
    return payloadConverter.fromPayload(decoded[0] as Payload);
  };
}
