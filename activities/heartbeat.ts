import { Context as ActivityContext, type Context } from '@temporalio/activity';

/**
 * Beats until `work` ends, so that the server notices a dead worker, and a living one its cancellation.
 * Slow on purpose (a third of the timeout, at most 10 s), and none at the start: heartbeats are what loads a
 * Temporal server most, and work that is over before the first costs it none.
 */
export async function withHeartbeat<R>(
  details: () => unknown,
  work: (context: Context) => Promise<R>,
): Promise<R> {
  const context = ActivityContext.current();
  const timeoutMs = context.info.heartbeatTimeoutMs ?? 30_000;
  const timer = setInterval(() => context.heartbeat(details()), Math.min(timeoutMs / 3, 10_000));
  try {
    return await work(context);
  } finally {
    clearInterval(timer);
  }
}
