import type { FailureType, Stage } from './failures.ts';
import type { CancelReason } from './request.ts';

/** Workflow type of one rollout. */
export const ROLLOUT_WORKFLOW = 'rollout';

/** Signal `cancel`: ends the rollout, with a reason. */
export const CANCEL_SIGNAL = 'cancel';
export interface CancelSignal {
  readonly reason: CancelReason;
}

/**
 * Signal and update `pause`: the rollout gives its slot and its LLM request back, at the latest when the tool
 * call under way has ended, and keeps its sandbox. The update answers when that is so.
 */
export const PAUSE = 'pause';

/** Signal and update `resume`: a paused rollout goes on after its last token. */
export const RESUME = 'resume';

/**
 * Signal `leaveHost`: a rollout whose sandbox is on this host goes on in another one elsewhere after its last token,
 * with its workspace; it begins a new attempt where that cannot be kept. It changes nothing for any other rollout.
 */
export const LEAVE_HOST_SIGNAL = 'leaveHost';
export interface LeaveHostSignal {
  readonly host: string;
}

/** Signal of a run worker that has begun; the active time counts from then. */
export const STAGE_STARTED_SIGNAL = 'stageStarted';
export interface StageStartedSignal {
  readonly attempt: number;
  /** Which of the attempt's entries into the run stage has begun; one that is over counts nothing. */
  readonly entry: number;
  /** Milliseconds since it began: a duration, since clocks of machines differ. */
  readonly elapsedMs: number;
}

/**
 * Signal of a run worker whose agent waits because there is no LLM server: its active time stands still until the
 * next `stageStarted`. `elapsedMs` is what it worked since the last one.
 */
export const STAGE_WAITS_SIGNAL = 'stageWaits';
export type StageWaitsSignal = StageStartedSignal;

/** Query `status`, and the answer of the updates. */
export const STATUS_QUERY = 'status';
export interface RolloutStatus {
  readonly stage: Stage | 'ended';
  readonly attempt: number;
  /** Where its sandbox is, or was; null before the first, and while a long pause has taken it. */
  readonly host: string | null;
  /** Asked to pause and not to resume; `stage` is `paused` once it has. */
  readonly pauseRequested: boolean;
  /** Milliseconds that the agent has worked in this attempt, pauses and queues not counted. */
  readonly activeMs: number;
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

/** Update of the sweeper that ends many rollouts at once; contracts/sweep.ts has what it takes and answers. */
export const CANCEL_MANY_UPDATE = 'cancelMany';
