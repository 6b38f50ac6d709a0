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
