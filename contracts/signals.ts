import type { FailureType, Stage } from './failures.ts';
import type { CancelReason } from './request.ts';

/** Workflow type of one rollout. */
export const ROLLOUT_WORKFLOW = 'rollout';

/** Signal `cancel`: ends the rollout, with a reason. */
export const CANCEL_SIGNAL = 'cancel';
export interface CancelSignal {
  readonly reason: CancelReason;
}

/** Query `status`. */
export const STATUS_QUERY = 'status';
export interface RolloutStatus {
  readonly stage: Stage | 'ended';
  readonly attempt: number;
  readonly host: string | null;
  readonly cancelRequested: CancelReason | null;
  readonly retried: readonly FailureType[];
}

/** Reasons that a cancel signal may carry; anything else is refused with a log line. */
export const CANCEL_REASONS: readonly CancelReason[] = [
  'user',
  'stale',
  'superseded',
  'batchComplete',
  'deadline',
  'shutdown',
];
