import { Context as ActivityContext, type Context } from '@temporalio/activity';

/** Thousands of open rollouts with a timeout of many minutes are to load no server. */
const MOST_MS = 60_000;

/**
 * Beats until `work` ends, so that the server notices a dead worker, and a living one its cancellation.
 * Slow on purpose (half of the timeout, at most a minute), and none at the start: heartbeats are what loads a
 * Temporal server most, and work that is over before the first costs it none. The other half is for a busy machine.
 */
export async function withHeartbeat<R>(
  details: () => unknown,
  work: (context: Context) => Promise<R>,
): Promise<R> {
  const context = ActivityContext.current();
  const timeoutMs = context.info.heartbeatTimeoutMs ?? 30_000;
  const timer = setInterval(() => context.heartbeat(details()), Math.min(timeoutMs / 2, MOST_MS));
  try {
    return await work(context);
  } finally {
    clearInterval(timer);
  }
}
