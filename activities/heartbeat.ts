import { Context as ActivityContext, type Context } from '@temporalio/activity';

/** Milliseconds of work after which it is worth a heartbeat. */
const FIRST_BEAT_MS = 1000;

/**
 * Beats until `work` ends, so that the server notices a dead worker, and a living one its cancellation.
 * Slow on purpose (a third of the timeout, at most 10 s): heartbeats are what loads a Temporal server most. The
 * first comes after a second: work that is over by then costs the server none.
 */
export async function withHeartbeat<R>(
  details: () => unknown,
  work: (context: Context) => Promise<R>,
): Promise<R> {
  const context = ActivityContext.current();
  const timeoutMs = context.info.heartbeatTimeoutMs ?? 30_000;
  const every = Math.min(timeoutMs / 3, 10_000);
  const beat = (afterMs: number): NodeJS.Timeout =>
    setTimeout(() => {
      context.heartbeat(details());
      timer = beat(every);
    }, afterMs);
  let timer = beat(Math.min(every, FIRST_BEAT_MS));
  try {
    return await work(context);
  } finally {
    clearTimeout(timer);
  }
}
