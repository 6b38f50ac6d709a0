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
 * What a stop makes of a run: a way of ending, or an error where nothing can go on here.
 * @throws RolloutError FenceRefused, SandboxLost
 */
export function endOfStop(cause: StopCause): 'aborted' | 'deadline' | 'shutdown' {
  switch (cause.kind) {
    case 'cancel':
      return 'aborted';
    case 'deadline':
      return 'deadline';
    case 'shutdown':
      return 'shutdown';
    case 'superseded':
      throw new RolloutError('FenceRefused', 'a newer run of this rollout holds the sandbox');
    case 'lost':
      throw new RolloutError('SandboxLost', cause.message);
  }
}

/** Stops an agent once, with the first cause given; later ones change nothing. */
export class StopSwitch {
  private readonly controller = new AbortController();
  private readonly pause = new AbortController();
  private stopped: { readonly cause: StopCause; readonly at: number } | undefined;
  /** Aborts what can go on later where it was: sampling. A tool call that has begun ends first. */
  readonly generation = AbortSignal.any([this.controller.signal, this.pause.signal]);

  /** Aborts when the switch is thrown. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** The run is to give its slot back at the next place where it can go on. */
  get pausing(): boolean {
    return this.pause.signal.aborted;
  }

  requestPause(): void {
    this.pause.abort(new Error('paused'));
  }

  /** The cause, once thrown. */
  get cause(): StopCause | undefined {
    return this.stopped?.cause;
  }

  /** Milliseconds since it was thrown; 0 if it was not. */
  get sinceMs(): number {
    return this.stopped ? performance.now() - this.stopped.at : 0;
  }

  throw(cause: StopCause): void {
    if (this.stopped) return;
    this.stopped = { cause, at: performance.now() };
    this.controller.abort(new Error(`stopped: ${cause.kind}`));
  }
}
