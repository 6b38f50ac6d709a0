import {
  ApplicationFailure,
  CancellationScope,
  condition,
  defineQuery,
  defineSignal,
  defineUpdate,
  setHandler,
} from '@temporalio/workflow';
import type { CancelReason } from '../contracts/request.ts';
import {
  CANCEL_SIGNAL,
  type CancelSignal,
  LEAVE_HOST_SIGNAL,
  type LeaveHostSignal,
  PAUSE,
  RESUME,
  type RolloutStatus,
  STAGE_STARTED_SIGNAL,
  STAGE_WAITS_SIGNAL,
  STATUS_QUERY,
  type StageStartedSignal,
  type StageWaitsSignal,
} from '../contracts/signals.ts';
import { onSignal } from './guarded-signal.ts';
import { cancelProblem, leaveHostProblem, stageStartedProblem } from './guards.ts';

/** What can be done to a rollout from outside while it is open; each is harmless when it comes twice or late. */
export interface Steered {
  cancel(reason: CancelReason): void;
  pause(): void;
  resume(): void;
  leaveHost(host: string): void;
  stageStarted(signal: StageStartedSignal): void;
  stageWaits(signal: StageWaitsSignal): void;
  status(): RolloutStatus;
}

/**
 * Connects the signals, updates and the query of contracts/signals.ts to a rollout. A malformed signal is
 * logged and changes nothing; a malformed update is refused.
 */
export function steer(rollout: Steered): void {
  onSignal<CancelSignal>(CANCEL_SIGNAL, cancelProblem, ({ reason }) => rollout.cancel(reason));
  onSignal<StageStartedSignal>(STAGE_STARTED_SIGNAL, stageStartedProblem, (signal) =>
    rollout.stageStarted(signal),
  );
  onSignal<StageWaitsSignal>(STAGE_WAITS_SIGNAL, stageStartedProblem, (signal) => rollout.stageWaits(signal));
  onSignal<LeaveHostSignal>(LEAVE_HOST_SIGNAL, leaveHostProblem, ({ host }) => rollout.leaveHost(host));
  setHandler(defineSignal(PAUSE), () => rollout.pause());
  setHandler(defineSignal(RESUME), () => rollout.resume());

  setHandler(
    defineUpdate<RolloutStatus, [CancelSignal]>(CANCEL_SIGNAL),
    ({ reason }) => {
      rollout.cancel(reason);
      return rollout.status();
    },
    {
      validator: (payload) => {
        const problem = cancelProblem(payload);
        if (problem) throw ApplicationFailure.nonRetryable(problem, 'InvalidRequest');
      },
    },
  );
  setHandler(defineUpdate<RolloutStatus>(PAUSE), async () => {
    rollout.pause();
    await condition(() => {
      const { stage, pauseRequested } = rollout.status();
      return stage === 'paused' || stage === 'ended' || !pauseRequested;
    });
    return rollout.status();
  });
  setHandler(defineUpdate<RolloutStatus>(RESUME), () => {
    rollout.resume();
    return rollout.status();
  });
  setHandler(defineQuery<RolloutStatus>(STATUS_QUERY), () => rollout.status());
  // Temporal's own cancel (UI, `temporal workflow cancel`) takes the same path as the signal.
  CancellationScope.current().cancelRequested.catch(() => rollout.cancel('user'));
}
