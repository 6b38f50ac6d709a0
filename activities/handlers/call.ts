import { type FailureType, messageOf, RolloutError } from '../../contracts/failures.ts';

/** How long a handler's function may take, and what stops it sooner. */
export interface CallBounds {
  readonly signal: AbortSignal;
  readonly seconds: number;
  /** What it is called when the time is over; HandlerFailed if not given. */
  readonly late?: FailureType;
  /** What it is called when the function throws anything without a type; HandlerFailed if not given. */
  readonly thrown?: FailureType;
}

/**
 * Calls a function of a handler. Handlers are other people's code: one that never returns must not keep a
 * slot for ever, so the call is left when its time is over or its signal aborts, whatever becomes of it.
 * @throws RolloutError of the given types, or the signal's reason.
 */
export async function callHandler<R>(
  what: string,
  { signal, seconds, late = 'HandlerFailed', thrown = 'HandlerFailed' }: CallBounds,
  work: () => R | Promise<R>,
): Promise<R> {
  signal.throwIfAborted();
  let leave: () => void = () => {};
  const left = new Promise<never>((_, reject) => {
    const timer = setTimeout(
      () => reject(new RolloutError(late, `${what} did not return within ${seconds} s`)),
      Math.min(seconds * 1000, 0x7fff_ffff),
    );
    const stopped = () => reject(signal.reason);
    signal.addEventListener('abort', stopped);
    leave = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', stopped);
    };
  });
  try {
    return await Promise.race([(async () => work())(), left]);
  } catch (error) {
    if (error instanceof RolloutError || (signal.aborted && error === signal.reason)) throw error;
    throw new RolloutError(thrown, `${what}: ${messageOf(error)}`, { cause: error });
  } finally {
    leave();
  }
}
