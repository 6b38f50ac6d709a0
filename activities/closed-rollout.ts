import type { Client } from '@temporalio/client';
import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import { FAILURES } from '../contracts/failures.ts';
import { recordIdentity, recordTimings } from '../contracts/record.ts';
import { RolloutRequest } from '../contracts/request.ts';
import type { RolloutResult } from '../contracts/result.ts';

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
  const payloads = events[0]?.workflowExecutionStartedEventAttributes?.input?.payloads ?? [];
  const request = RolloutRequest.parse(defaultPayloadConverter.fromPayload(payloads[0] as Payload));
  const [startedAt, endedAt] = [startTime.toISOString(), (closeTime ?? new Date()).toISOString()];
  const result: RolloutResult = {
    ...recordIdentity(request, runId),
    outcome: 'failed',
    reward: null,
    truncation: null,
    cancel: null,
    failure: { type: 'Terminated', stage: 'queued', cause: FAILURES.Terminated.cause, message, attempt: 0 },
    retried: [],
    attempt: 0,
    host: null,
    backend: null,
    policyVersions: null,
    trajectory: null,
    startedAt,
    endedAt,
    timings: recordTimings(startedAt, endedAt, { initMs: 0, runMs: 0, evaluateMs: 0 }),
  };
  return { request, result };
}
