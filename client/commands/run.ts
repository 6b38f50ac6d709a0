import { access } from 'node:fs/promises';
import { type HandlerRegistry, loadHandlers } from '../../activities/handlers/registry.ts';
import type { Config } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { runBatch } from '../batch.ts';
import { BatchProgress, type Output } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';
import { BatchTally, summaryText } from '../summary.ts';
import { readTasks } from '../tasks-file.ts';
import { TrajectoryFile } from '../trajectory-file.ts';

/** Options of `rollouts run`. */
export interface RunOptions {
  readonly tasks: string;
  readonly handler: string;
  readonly samples: number;
  readonly limit?: number;
  readonly concurrency: number;
  readonly batch?: string;
  readonly out?: string;
}

/**
 * Runs a file of tasks and writes one trajectory per line to `out`. What a failed or cancelled rollout sampled
 * is written as well, its reward null; failures are counted apart.
 * @returns the exit code: 0 if every line was a task and no rollout failed.
 */
export async function runCommand(config: Config, options: RunOptions, output: Output): Promise<number> {
  const registry = await loadHandlers(config.workers, { python: () => loadTools().python });
  const client = await RolloutClient.connect(config);
  const batch = options.batch ?? newBatchId();
  process.once('SIGINT', () => {
    output.note(`left: what was started goes on; the same command with --batch ${batch} takes it up`);
    process.exit(130);
  });
  try {
    return await runTasks(client, config, registry, { ...options, batch }, output);
  } finally {
    await client.close();
  }
}

/** {@link runCommand} with a client that is connected. */
export async function runTasks(
  client: RolloutClient,
  config: Config,
  registry: HandlerRegistry,
  options: RunOptions & { readonly batch: string },
  output: Output,
): Promise<number> {
  registry.get(options.handler);
  await access(options.tasks).catch((error) => {
    throw new RolloutError('InvalidRequest', `tasks file: ${messageOf(error)}`, { cause: error });
  });
  const batchId = options.batch;
  const out =
    options.out === undefined ? undefined : await TrajectoryFile.create(options.out, [options.tasks]);
  const progress = new BatchProgress(output);
  const tally = new BatchTally();
  let badLines = 0;
  output.note(`batch ${batchId}`);
  try {
    await runBatch(client, config, {
      batchId,
      tasks: readTasks(options.tasks, options.handler, registry, (bad) => {
        badLines++;
        output.note(`${bad.file}:${bad.line}: ${bad.problem}`);
      }),
      samples: options.samples,
      ...(options.limit === undefined ? {} : { limit: options.limit }),
      concurrency: options.concurrency,
      onStart: () => progress.begin(),
      onRefused: (rolloutId, problem) => {
        badLines++;
        output.note(`${rolloutId}: ${problem}`);
      },
      onResult: async (result) => {
        await out?.add(result.trajectory);
        tally.add(result);
        progress.end(result);
      },
    });
  } finally {
    progress.stop();
    await out?.close();
  }
  const summary = { ...tally.summary(batchId), badLines, out: options.out ?? null };
  output.result(summary, () =>
    [
      summaryText(summary),
      badLines > 0 && `${badLines} malformed task lines`,
      options.out && `trajectories: ${options.out}`,
    ]
      .filter((line) => typeof line === 'string')
      .join('\n'),
  );
  return badLines === 0 && summary.outcomes.failed === 0 ? 0 : 1;
}

/** A batch id that sorts by time. */
export function newBatchId(): string {
  const time = new Date().toISOString().replace(/[-:]/g, '').slice(0, 15);
  return `run-${time}-${Math.random().toString(36).slice(2, 6)}`;
}
