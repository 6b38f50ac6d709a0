import { proxyActivities } from '@temporalio/workflow';
import { controlQueue } from '../contracts/queues.ts';
import type { HostActivities } from '../contracts/stages.ts';

/**
 * Stands for a sandbox host while it is up, so that commands to all hosts know where to go and a person sees
 * them in the UI. The host's heartbeats are the presence; it ends when the host takes its leave.
 */
export async function sandboxHost({ host }: { host: string }): Promise<void> {
  const { presence } = proxyActivities<HostActivities>({
    taskQueue: controlQueue(host),
    // One that is away without having taken its leave may come back: it is waited for.
    startToCloseTimeout: '3650d',
    heartbeatTimeout: '30s',
    retry: { initialInterval: '1s', maximumInterval: '10s' },
    summary: host,
  });
  await presence();
}
