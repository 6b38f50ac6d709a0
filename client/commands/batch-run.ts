import { type HandlerRegistry, loadHandlers } from '../../activities/handlers/registry.ts';
import { openArchive } from '../../activities/trajectory/archive.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { Config } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import type { BatchResult } from '../../contracts/batch.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { GroupResult } from '../../contracts/group.ts';
import { BatchRules, GroupId, GroupRules } from '../../contracts/group-rules.ts';
import type { Task } from '../../contracts/task.ts';
import { requestDefaults } from '../batch.ts';
import type { GroupClient } from '../groups.ts';
import type { Output } from '../output.ts';
import { digestOf, wholeTemplate } from '../submission.ts';
import { readTasks } from '../tasks-file.ts';
import { TrajectoryFile } from '../trajectory-file.ts';
import { showBatch, withGroups } from './batch.ts';
import { newBatchId } from './run.ts';

/** Options of `rollouts batch run`. */
export interface BatchRunOptions {
  readonly tasks: string;
  readonly handler: string;
  /** Groups that the batch is full with. */
  readonly groups: number;
  /** Rollouts of each task. */
  readonly samples: number;
  readonly batch?: string;
  readonly out?: string;
  /** Groups with equal rewards count as well. */
  readonly keepEqual?: boolean;
}

/**
 * `rollouts batch run`: begins a batch of groups over a file of tasks, or takes up the one of this id, and follows it to
 * its end. Trajectories of its groups go to `out`, a line each.
 * @returns the exit code: 0 if it has all the groups that it was to have
 * @throws RolloutError InvalidRequest, InvalidTask naming the line
 */
export async function batchRunCommand(
  config: Config,
  options: BatchRunOptions,
  output: Output,
): Promise<number> {
  const registry = await loadHandlers(config.workers, { python: () => loadTools().python });
  const batch = options.batch ?? newBatchId();
  process.once('SIGINT', () => {
    output.note(`left: the batch goes on; the same command with --batch ${batch} takes it up`);
    process.exit(130);
  });
  return runGroups(config, registry, { ...options, batch }, output);
}

/** {@link batchRunCommand} with handlers that are loaded. */
export async function runGroups(
  config: Config,
  registry: HandlerRegistry,
  options: BatchRunOptions & { readonly batch: string },
  output: Output,
): Promise<number> {
  const batchId = options.batch;
  const parsed = GroupId.safeParse(batchId);
  if (!parsed.success)
    throw new RolloutError('InvalidRequest', `--batch: ${parsed.error.issues[0]?.message}`);
  let end: BatchResult['end'] | undefined;
  await withGroups(config, batchId, async (groups, store) => {
    const { set, tasks } = await store.putTasks(await tasksOf(options, registry));
    const asked = {
      sources: [{ set, tasks, weight: 1, domain: options.handler }],
      rules: BatchRules.parse({ groups: options.groups, dropEqual: options.keepEqual !== true }),
      group: GroupRules.parse({ samples: options.samples }),
      template: wholeTemplate(requestDefaults(config)),
    };
    const digest = digestOf(asked);
    const begun = await groups.startBatch({ batchId, ...asked, digest });
    if (begun.digest !== digest) {
      throw new RolloutError('InvalidRequest', `--batch: ${batchId} was begun with another request`);
    }
    output.note(`batch ${batchId}${begun.isNew ? '' : ', begun before'}`);
    await follow(groups, config, batchId, options, output);
    end = (await groups.batchResult(batchId))?.end;
  });
  await showBatch(config, batchId, output);
  return end === 'full' ? 0 : 1;
}

/** All tasks of the file: a batch draws from a set that does not change. */
async function tasksOf({ tasks, handler }: BatchRunOptions, registry: HandlerRegistry): Promise<Task[]> {
  const read = readTasks(tasks, handler, registry, ({ file, line, problem }) => {
    throw new RolloutError('InvalidTask', `${file}, line ${line}: ${problem}`);
  });
  const all: Task[] = [];
  for await (const task of read) all.push(task);
  return all;
}

/** Until the batch has ended. */
async function follow(
  groups: GroupClient,
  config: Config,
  batchId: string,
  { out: name, tasks }: BatchRunOptions,
  output: Output,
): Promise<void> {
  const store = new TrajectoryStore(config.derived.storeFolder, openArchive(config.archive));
  const out = name === undefined ? undefined : await TrajectoryFile.create(name, [tasks], store.archive);
  try {
    let count = 0;
    for await (const group of groups.batchGroups(batchId, 0, new AbortController().signal)) {
      output.note(lineOf(group, ++count));
      for (const { rolloutId } of out ? group.samples : []) {
        await out?.add((await store.getTerminal(rolloutId))?.trajectory ?? null);
      }
    }
  } finally {
    await out?.close();
  }
}

function lineOf({ groupId, taskId, verdict, rewardMean, counted }: GroupResult, count: number): string {
  const mean = rewardMean === null ? '-' : rewardMean.toFixed(2);
  return `[${count}] ${groupId} ${taskId} ${verdict}, mean reward ${mean} of ${counted}`;
}
