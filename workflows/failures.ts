import { ActivityFailure, ApplicationFailure, TimeoutFailure } from '@temporalio/workflow';
import type { SettledRequest } from '../contracts/deadlines.ts';
import type { Stage } from '../contracts/failures.ts';
import { FAILURES, type FailureType, isFailureType, messageOf } from '../contracts/failures.ts';
import type { StageFailure } from '../contracts/result.ts';

/** Reads what a stage's activity threw as an entry of the failure table. Pure. */
export function stageFailureOf(
  error: unknown,
  { request, stage, attempt }: { request: SettledRequest; stage: Stage; attempt: number },
): StageFailure {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  const type = typeOf(cause, stage);
  const message = cause instanceof TimeoutFailure ? whatExpired(cause, stage, request) : messageOf(cause);
  return { type, stage, cause: FAILURES[type].cause, message, attempt };
}

/** Which limit of the request the server enforced, and where it is set. */
function whatExpired({ timeoutType }: TimeoutFailure, stage: Stage, request: SettledRequest): string {
  const { deadlines, heartbeatTimeoutSeconds, hostLostSeconds } = request;
  switch (timeoutType) {
    case 'HEARTBEAT':
      return `no heartbeat for ${heartbeatTimeoutSeconds} s (heartbeatTimeoutSeconds)`;
    case 'SCHEDULE_TO_START':
      return stage === 'run'
        ? `its host did not take it within ${hostLostSeconds} s (hostLostSeconds)`
        : `no worker took it within ${deadlines.queueSeconds} s (deadlines.queueSeconds)`;
    default:
      if (stage === 'init') return `it took more than ${deadlines.initSeconds} s (deadlines.initSeconds)`;
      if (stage === 'evaluate') {
        return `it took more than ${deadlines.evaluateSeconds} s (deadlines.evaluateSeconds)`;
      }
      return `it did not end after its deadline of ${deadlines.runSeconds} s`;
  }
}

function typeOf(cause: unknown, stage: Stage): FailureType {
  if (cause instanceof ApplicationFailure && isFailureType(cause.type)) return cause.type;
  // What the SDK makes of an activity that a worker had to break off when it was told to stop.
  if (cause instanceof ApplicationFailure && cause.type === 'WorkerShutdown') return 'WorkerLost';
  if (cause instanceof TimeoutFailure) {
    switch (cause.timeoutType) {
      case 'HEARTBEAT':
        return 'WorkerLost';
      case 'SCHEDULE_TO_START':
        return stage === 'run' ? 'HostLost' : 'QueueTimeout';
      default:
        // A run ends at its deadline by itself, and what exists is graded: one that does not is stuck.
        return stage === 'run' ? 'WorkerLost' : 'StageDeadline';
    }
  }
  return 'Internal';
}
