import { ActivityFailure, ApplicationFailure, log, proxyActivities } from '@temporalio/workflow';
import { messageOf } from '../contracts/failures.ts';
import type { LlmServer } from '../contracts/llm.ts';
import type { ModelFacts, PoolActivities } from '../contracts/pool.ts';
import { POOL_QUEUE } from '../contracts/queues.ts';

/** What is done to a pool's servers. */
export const servers = proxyActivities<PoolActivities>({
  taskQueue: POOL_QUEUE,
  // Large weights take minutes; a worker that dies meanwhile shows by its heartbeat.
  startToCloseTimeout: '1h',
  scheduleToStartTimeout: '60s',
  heartbeatTimeout: '30s',
  retry: { maximumAttempts: 3, initialInterval: '1s' },
});

/** What a server serves. @throws ApplicationFailure of the type with which the look at a server failed */
export async function probed(server: LlmServer): Promise<ModelFacts> {
  try {
    return await look.probe({ server });
  } catch (error) {
    const { type, message } = reasonOf(error);
    log.warn('a server is refused', { url: server.url, message });
    throw ApplicationFailure.nonRetryable(message, type);
  }
}

const look = proxyActivities<PoolActivities>({
  taskQueue: POOL_QUEUE,
  startToCloseTimeout: '5m',
  scheduleToStartTimeout: '60s',
  heartbeatTimeout: '30s',
  // Whoever adds a server hears at once why it cannot be.
  retry: { maximumAttempts: 1 },
});

/** Why an activity of the pool failed, with a type of the failure table. */
export function reasonOf(error: unknown): { type: string; message: string } {
  const cause = error instanceof ActivityFailure ? (error.cause ?? error) : error;
  const type = cause instanceof ApplicationFailure ? (cause.type ?? 'Internal') : 'QueueTimeout';
  const nobody = 'no run worker took it in time';
  return {
    type,
    message: cause instanceof ApplicationFailure ? cause.message : `${nobody}: ${messageOf(cause)}`,
  };
}
