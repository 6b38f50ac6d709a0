import { ActivityFailure, proxyActivities, TimeoutFailure } from '@temporalio/workflow';
import { controlQueue } from '../contracts/queues.ts';
import type { HostActivities } from '../contracts/stages.ts';

/** Seconds that one which is away without having taken its leave is waited for: it may come back. */
const AWAY_SECONDS = 86_400;

/**
 * Stands for a sandbox host while it is up, so that commands to all hosts know where to go and a person sees
 * them in the UI. The host's heartbeats are the presence; it ends when the host takes its leave, or does not come back:
 * a node that a cluster has lost may never come back under this name.
 */
export async function sandboxHost({
  host,
  awaySeconds = AWAY_SECONDS,
}: {
  host: string;
  awaySeconds?: number;
}): Promise<void> {
  const { presence } = proxyActivities<HostActivities>({
    taskQueue: controlQueue(host),
    startToCloseTimeout: '3650d',
    scheduleToStartTimeout: awaySeconds * 1000,
    heartbeatTimeout: '30s',
    retry: { initialInterval: '1s', maximumInterval: '10s' },
    summary: host,
  });
  await presence().catch((error: unknown) => {
    if (!isAway(error)) throw error;
  });
}

function isAway(error: unknown): boolean {
  const { cause } = error instanceof ActivityFailure ? error : {};
  return cause instanceof TimeoutFailure && cause.timeoutType === 'SCHEDULE_TO_START';
}
