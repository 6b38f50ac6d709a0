import { proxyActivities } from '@temporalio/workflow';

interface Nothing {
  nothing(given: string): Promise<string>;
}

const on = (taskQueue: string) =>
  proxyActivities<Nothing>({ taskQueue, startToCloseTimeout: '10m', retry: { maximumAttempts: 1 } });

/** Three empty activities on three queues, one after the other: what a rollout cannot be quicker than. */
export async function bare(given: string): Promise<string> {
  const a = await on('bare-a').nothing(given);
  const b = await on('bare-b').nothing(a);
  return on('bare-c').nothing(b);
}
