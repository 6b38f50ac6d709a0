import { ActivityFailure, ApplicationFailure, TimeoutFailure } from '@temporalio/workflow';
import type { Stage } from '../contracts/failures.ts';
import { FAILURES, type FailureType, isFailureType, messageOf } from '../contracts/failures.ts';
import type { StageFailure } from '../contracts/result.ts';

/** Reads what a stage's activity threw as an entry of the failure table. Pure. */
export function stageFailureOf(error: unknown, stage: Stage, attempt: number): StageFailure {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  const type = typeOf(cause, stage);
  const message =
    cause instanceof TimeoutFailure ? `${stage}: ${cause.timeoutType} timeout` : messageOf(cause);
  return { type, stage, cause: FAILURES[type].cause, message, attempt };
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
