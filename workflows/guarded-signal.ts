import { defineSignal, log, setHandler } from '@temporalio/workflow';

/** Listens to a signal with a payload. One that `problemOf` finds malformed is logged and changes nothing. */
export function onSignal<T>(
  name: string,
  problemOf: (payload: unknown) => string | null,
  act: (payload: T) => void,
): void {
  setHandler(defineSignal<[T]>(name), (payload) => {
    const problem = problemOf(payload);
    if (problem) log.warn('a signal is ignored', { signal: name, problem });
    else act(payload);
  });
}
