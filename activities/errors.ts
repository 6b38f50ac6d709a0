import { ApplicationFailure, CancelledFailure } from '@temporalio/activity';
import { type FailureType, helpsInStage, messageOf, RolloutError } from '../contracts/failures.ts';

/**
 * The edge of every activity: turns what it throws into a Temporal failure whose type is in the failure
 * table, retryable or not as that table says. Cancellation passes through; anything without a type becomes
 * `fallback`. `details` go with the failure.
 */
export async function atEdge<R>(
  fallback: FailureType,
  work: () => Promise<R>,
  details?: () => unknown,
): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof CancelledFailure || error instanceof ApplicationFailure) throw error;
    const type = error instanceof RolloutError ? error.type : fallback;
    // The server cuts failures at 4 KB: keep the front, which says what happened.
    const message = messageOf(error).slice(0, 3000);
    throw ApplicationFailure.create({
      type,
      message,
      nonRetryable: !helpsInStage(type),
      cause: causeOf(error),
      ...(details ? { details: [details()] } : {}),
    });
  }
}

function causeOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
