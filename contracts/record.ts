import type { RolloutRequest } from './request.ts';
import type { RolloutResult } from './result.ts';

/** The fields of a terminal record that follow from the request and the workflow run; pure. */
export function recordIdentity(
  request: RolloutRequest,
  workflowRunId: string,
): Pick<
  RolloutResult,
  | 'schemaVersion'
  | 'rolloutId'
  | 'workflowRunId'
  | 'handler'
  | 'taskId'
  | 'sample'
  | 'groupId'
  | 'batchId'
  | 'requestDigest'
> {
  return {
    schemaVersion: 1,
    rolloutId: request.rolloutId,
    workflowRunId,
    handler: request.task.handler,
    taskId: request.task.id,
    sample: request.sample,
    groupId: request.groupId ?? null,
    batchId: request.batchId ?? null,
    ...(request.digest === undefined ? {} : { requestDigest: request.digest }),
  };
}

/** Stage times from what each stage measured; what remains of the whole was spent in queues. Pure. */
export function recordTimings(
  startedAt: string,
  endedAt: string,
  measured: { initMs: number; runMs: number; evaluateMs: number; pausedMs?: number },
): RolloutResult['timings'] {
  const totalMs = Math.max(0, Date.parse(endedAt) - Date.parse(startedAt));
  const { initMs, runMs, evaluateMs, pausedMs = 0 } = measured;
  const queueMs = Math.max(0, totalMs - initMs - runMs - evaluateMs - pausedMs);
  return { ...measured, queueMs, totalMs };
}
