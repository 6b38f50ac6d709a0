import { proxyActivities, sleep, upsertSearchAttributes } from '@temporalio/workflow';
import { SEARCH_ATTRIBUTES } from '../contracts/search-attributes.ts';

interface Nothing {
  nothing(given: string): Promise<string>;
}

const on = (taskQueue: string) =>
  // A server at its limit may count an activity as started and lose the answer to the worker's poll: only this timeout,
  // with another try, ends the wait for such a one.
  proxyActivities<Nothing>({ taskQueue, startToCloseTimeout: '10s' });

/** Three empty activities on three queues, one after the other: what a rollout cannot be quicker than. */
export async function bare(given: string): Promise<string> {
  const a = await on('bare-a').nothing(given);
  const b = await on('bare-b').nothing(a);
  return on('bare-c').nothing(b);
}

/** The same with what a rollout tells the server besides: its deadline, and in lists where it is. */
export async function listed(given: string): Promise<string> {
  void sleep('7d');
  const say = (stage: string) => upsertSearchAttributes([{ key: SEARCH_ATTRIBUTES.stage, value: stage }]);
  const a = await on('bare-a').nothing(given);
  say('run');
  const b = await on('bare-b').nothing(a);
  say('evaluate');
  const c = await on('bare-c').nothing(b);
  say('ended');
  return c;
}
