import { createHash } from 'node:crypto';
import type { Config } from '../config/load.ts';
import { RolloutError } from '../contracts/failures.ts';
import { RolloutId, type RolloutRequestInput } from '../contracts/request.ts';
import type { RolloutResult } from '../contracts/result.ts';
import type { Task } from '../contracts/task.ts';
import type { RolloutClient } from './rollout-client.ts';

/** What a batch run is given. */
export interface BatchOptions {
  readonly batchId: string;
  readonly tasks: AsyncIterable<Task>;
  /** Rollouts of each task. */
  readonly samples: number;
  /** Tasks to take, from the first; all if absent. */
  readonly limit?: number;
  /** Rollouts that may be open at once. */
  readonly concurrency: number;
  /** Told of every rollout that is begun and of every terminal record, as they come. */
  onStart(rolloutId: string): void;
  onResult(result: RolloutResult): Promise<void> | void;
  /** Told of a rollout that could not be asked for; the others go on. */
  onRefused(rolloutId: string, problem: string): void;
}

/**
 * Runs samples of tasks, a bounded number at a time, and reports each terminal record. Ids follow from the
 * batch, the task and the sample: run again with the same batch id, it takes up what is there and starts
 * only what is missing.
 */
export async function runBatch(client: RolloutClient, config: Config, options: BatchOptions): Promise<void> {
  const requests = requestsOf(config, options);
  const worker = async () => {
    for (;;) {
      const { done, value: request } = await requests.next();
      if (done) return;
      const result = await executeOrRefuse(client, request, options);
      if (result) await options.onResult(result);
    }
  };
  // All of them, also when one fails: none may go on behind the back of a caller that closes the client.
  const ends = await Promise.allSettled(Array.from({ length: options.concurrency }, worker));
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
}

async function executeOrRefuse(
  client: RolloutClient,
  request: RolloutRequestInput,
  options: BatchOptions,
): Promise<RolloutResult | undefined> {
  try {
    const { rolloutId } = await client.start(request);
    options.onStart(rolloutId);
  } catch (error) {
    if (!(error instanceof RolloutError) || error.type !== 'InvalidRequest') throw error;
    options.onRefused(request.rolloutId, error.message);
    return undefined;
  }
  return client.result(request.rolloutId);
}

async function* requestsOf(config: Config, options: BatchOptions): AsyncGenerator<RolloutRequestInput> {
  const { batchId, samples, limit = Number.POSITIVE_INFINITY } = options;
  let taken = 0;
  for await (const task of options.tasks) {
    if (taken++ >= limit) return;
    for (let sample = 0; sample < samples; sample++) {
      yield {
        rolloutId: rolloutIdOf(batchId, task.id, sample),
        task,
        sample,
        batchId,
        groupId: `${batchId}:${task.id}`.slice(0, 200),
        ...requestDefaults(config),
      };
    }
  }
}

/** The part of a request that the configuration sets. */
export function requestDefaults(config: Config): Omit<RolloutRequestInput, 'rolloutId' | 'task'> {
  const { sampling, ...rest } = config.rollout;
  return { ...rest, sampling };
}

/**
 * Workflow id of one sample. A task id with characters that workflow ids may not have, or too long a one, is
 * rewritten, and a digest of it keeps it apart from others that would be rewritten alike.
 */
export function rolloutIdOf(batchId: string, taskId: string, sample: number): string {
  const plain = `${batchId}:${taskId}:${sample}`;
  if (RolloutId.safeParse(plain).success) return plain;
  const digest = createHash('sha256').update(plain).digest('hex').slice(0, 12);
  const readable = `${batchId}:${taskId}`.replace(/[^A-Za-z0-9._:-]/g, '-').slice(0, 160);
  return `${readable}:${digest}:${sample}`;
}
