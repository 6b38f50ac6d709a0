import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import type { Config } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { problemsOf } from '../../contracts/problems.ts';
import type { Task } from '../../contracts/task.ts';
import type { Reward } from '../../contracts/trajectory.ts';
import { GradingHost } from '../grading-host.ts';
import type { Output } from '../output.ts';
import { gradeRecorded } from '../recorded.ts';
import { type Row, rowsOf } from '../rows.ts';
import { readPlacedTasks } from '../tasks-file.ts';
import { openOut } from '../written-file.ts';

/** Options of `rollouts grade`. */
export interface GradeOptions {
  readonly tasks: string;
  readonly handler: string;
  readonly responses: string;
  readonly concurrency: number;
  readonly out?: string;
}

/** A line of the responses file. */
const Response = z.object({
  task_id: z.union([z.string(), z.number()]).transform(String),
  response: z.string(),
});

/** A line of the result, in the order of the responses. */
type Graded = { readonly task_id: string | null; readonly line: number } & (
  | { readonly reward: number; readonly parts: Reward['parts'] }
  | { readonly failure: { readonly type: string; readonly message: string } }
);

/**
 * `rollouts grade`: grades recorded answers without a rollout. Needs no stack: what runs code starts a sandbox host
 * of its own.
 * @returns the exit code: 0 if every task could be read and every response has a reward
 */
export async function gradeCommand(config: Config, options: GradeOptions, output: Output): Promise<number> {
  const registry = await loadHandlers(config.workers, { python: () => loadTools().python });
  let badTasks = 0;
  const tasks = new Map<string, Task>();
  const placed = readPlacedTasks(options.tasks, options.handler, registry, ({ file, line, problem }) => {
    badTasks++;
    output.note(`${file}:${line}: ${problem}`);
  });
  for await (const { task, line, named } of placed) {
    tasks.set(task.id, task);
    if (!named) tasks.set(String(line), task);
  }

  const host = new GradingHost(config);
  const { out, responses } = options;
  const sink = new Sink(out === undefined ? undefined : await openOut(out, [options.tasks, responses]));
  const stop = new AbortController();
  process.once('SIGINT', () => stop.abort(new RolloutError('Terminated', 'interrupted')));
  const of = async (row: Row): Promise<Graded> => {
    const read = 'problem' in row ? undefined : Response.safeParse(row.fields);
    const task_id = read?.data?.task_id ?? null;
    try {
      if ('problem' in row) throw new RolloutError('InvalidRequest', row.problem);
      if (!read?.data)
        throw new RolloutError('InvalidRequest', read ? problemsOf(read.error) : 'no response');
      const task = tasks.get(read.data.task_id);
      if (!task) throw new RolloutError('InvalidRequest', `no task has the id "${read.data.task_id}"`);
      const reward = await gradeRecorded(task, read.data.response, {
        ...{ registry, sandboxes: host.client, signal: stop.signal, id: `grade-${row.line}` },
        deadlines: config.rollout.deadlines,
      });
      return { task_id, line: row.line, reward: reward.total, parts: reward.parts };
    } catch (error) {
      const type = error instanceof RolloutError ? error.type : 'HandlerFailed';
      return { task_id, line: row.line, failure: { type, message: messageOf(error) } };
    }
  };
  const tally = { graded: 0, failed: 0, reward: 0 };
  try {
    for await (const graded of inOrder(rowsOf(responses), of, options.concurrency, stop.signal)) {
      if ('reward' in graded) {
        tally.graded++;
        tally.reward += graded.reward;
      } else {
        tally.failed++;
      }
      await sink.line(graded);
    }
  } finally {
    await sink.close();
    await host.close();
  }
  const mean = tally.graded === 0 ? '-' : (tally.reward / tally.graded).toFixed(4);
  output.note(
    `${tally.graded} graded, mean reward ${mean}; ${tally.failed} failed; ${badTasks} malformed tasks`,
  );
  return tally.failed === 0 && badTasks === 0 ? 0 : 1;
}

/** Works on so many at a time, and gives the results in the order of what came in; a slow one holds up no work. */
async function* inOrder<A, B>(
  items: AsyncIterable<A>,
  work: (item: A) => Promise<B>,
  most: number,
  signal: AbortSignal,
): AsyncIterable<B> {
  const active = new Set<Promise<B>>();
  const ordered: Promise<B>[] = [];
  for await (const item of items) {
    while (active.size >= most) await Promise.race(active);
    signal.throwIfAborted();
    const result = work(item);
    active.add(result);
    void result.then(() => active.delete(result));
    ordered.push(result);
    while (ordered[0] && !active.has(ordered[0])) yield (await ordered.shift()) as B;
  }
  for (const result of ordered) yield await result;
}

/** Where the lines go: a file, or standard output. */
class Sink {
  private readonly file: FileHandle | undefined;

  constructor(file: FileHandle | undefined) {
    this.file = file;
  }

  async line(value: unknown): Promise<void> {
    const text = `${JSON.stringify(value)}\n`;
    if (this.file) await this.file.appendFile(text);
    else process.stdout.write(text);
  }

  async close(): Promise<void> {
    await this.file?.close();
  }
}
