import { CancelledFailure, type Context } from '@temporalio/activity';
import { messageOf } from '../contracts/failures.ts';
import type { AbortReason, SandboxInfo } from '../contracts/sandbox.ts';
import type { StopCause, StopSwitch } from './agent/stop.ts';
import type { SandboxClient } from './sandbox/client.ts';

/** What a run is watched by. */
export interface Watched {
  readonly context: Context;
  readonly sandboxes: SandboxClient;
  readonly info: SandboxInfo;
  /** Aborted when the run is over. */
  readonly done: AbortSignal;
}

/** Throws the stop switch for whatever ends a run from outside: the host's word, or Temporal's. Never rejects. */
export async function watchForStops(
  stop: StopSwitch,
  { context, sandboxes, info, done }: Watched,
): Promise<void> {
  context.cancelled.catch((error: unknown) => {
    const why = error instanceof CancelledFailure ? error.message : '';
    if (why === 'WORKER_SHUTDOWN') stop.throw({ kind: 'shutdown' });
    else if (why === 'CANCELLED') stop.throw({ kind: 'cancel', reason: 'user' });
    else stop.throw({ kind: 'superseded' }); // timed out or unknown to the server: given up
  });
  try {
    const { fence, sandboxId } = info;
    let event = await sandboxes.watch(sandboxId, { fence }, done);
    if (event.event === 'pause') {
      stop.requestPause();
      event = await sandboxes.watch(sandboxId, { fence, paused: true }, done);
    }
    if (event.event === 'abort') stop.throw(stopOf(event.reason));
    else if (event.event === 'superseded') stop.throw({ kind: 'superseded' });
    else stop.throw({ kind: 'lost', message: 'the sandbox was released or died during the run' });
  } catch (error) {
    if (!done.aborted) stop.throw({ kind: 'lost', message: messageOf(error) });
  }
}

function stopOf(reason: AbortReason): StopCause {
  return reason === 'runDeadline' ? { kind: 'deadline' } : { kind: 'cancel', reason };
}
