import { RolloutError } from '../../contracts/failures.ts';
import type { CancelReason } from '../../contracts/request.ts';

/** Why an agent is stopped from outside. */
export type StopCause =
  | { readonly kind: 'cancel'; readonly reason: CancelReason }
  | { readonly kind: 'deadline' }
  /** The worker is told to end (a deploy); the run goes on elsewhere. */
  | { readonly kind: 'shutdown' }
  /** A newer run holds the sandbox. */
  | { readonly kind: 'superseded' }
  /** The sandbox or its host is gone. */
  | { readonly kind: 'lost'; readonly message: string };

/**
 * What a stop makes of a run: a way of ending, or an error where the run is to go on elsewhere or not at all.
 * @throws RolloutError WorkerLost, FenceRefused, SandboxLost
 */
export function endOfStop(cause: StopCause): 'aborted' | 'deadline' {
  switch (cause.kind) {
    case 'cancel':
      return 'aborted';
    case 'deadline':
      return 'deadline';
    case 'shutdown':
      throw new RolloutError(
        'WorkerLost',
        'the worker was told to stop; the run goes on after its last turn',
      );
    case 'superseded':
      throw new RolloutError('FenceRefused', 'a newer run of this rollout holds the sandbox');
    case 'lost':
      throw new RolloutError('SandboxLost', cause.message);
  }
}

/** Stops an agent once, with the first cause given; later ones change nothing. */
export class StopSwitch {
  private readonly controller = new AbortController();
  private stopped: StopCause | undefined;

  /** Aborts when the switch is thrown. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** The cause, once thrown. */
  get cause(): StopCause | undefined {
    return this.stopped;
  }

  throw(cause: StopCause): void {
    if (this.stopped) return;
    this.stopped = cause;
    this.controller.abort(new Error(`stopped: ${cause.kind}`));
  }
}
