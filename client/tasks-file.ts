import path from 'node:path';
import type { HandlerRegistry } from '../activities/handlers/registry.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import { problemsOf } from '../contracts/problems.ts';
import { Task } from '../contracts/task.ts';
import { type Fields, rowsOf } from './rows.ts';

/** A row that holds no task: where it is and what is wrong with it. */
export interface BadLine {
  readonly file: string;
  readonly line: number;
  readonly problem: string;
}

/** A task and where it stands. */
export interface PlacedTask {
  readonly task: Task;
  readonly line: number;
  /** False: the row names none, and its id is made of the file's name and the line. */
  readonly named: boolean;
}

/** Fields that data sets name their tasks by, in this order. */
const ID_FIELDS = ['id', 'task_id', 'instance_id', 'question_id', 'unique_id'] as const;

/** {@link readPlacedTasks}, the tasks alone. */
export async function* readTasks(
  file: string,
  handler: string,
  registry: HandlerRegistry,
  onBad: (bad: BadLine) => void,
): AsyncIterable<Task> {
  for await (const { task } of readPlacedTasks(file, handler, registry, onBad)) yield task;
}

/**
 * Reads tasks from a JSONL or Parquet file, one at a time: a file of any length takes no more memory than its ids. A
 * row that is no task, or repeats an id, is told to `onBad` and stops nothing else.
 * @throws RolloutError InvalidRequest if the file can't be read, UnknownHandler, GraderFailed
 */
export async function* readPlacedTasks(
  file: string,
  handler: string,
  registry: HandlerRegistry,
  onBad: (bad: BadLine) => void,
): AsyncIterable<PlacedTask> {
  registry.get(handler); // an unknown handler is one error, not one for each line
  const seen = new Map<string, number>();
  for await (const row of rowsOf(file)) {
    const { line } = row;
    try {
      if ('problem' in row) throw new RolloutError('InvalidTask', row.problem);
      const id = ID_FIELDS.map((field) => row.fields[field]).find(isId);
      const base = path.basename(file).replace(/\.(?:jsonl?(?:\.gz)?|parquet)$/, '');
      const task = taskOf(row.fields, id === undefined ? `${base}-${line}` : String(id), handler);
      await registry.admit(task);
      const earlier = seen.get(task.id);
      if (earlier !== undefined) {
        throw new RolloutError('InvalidTask', `id: "${task.id}" is line ${earlier}'s`);
      }
      seen.set(task.id, line);
      yield { task, line, named: id !== undefined };
    } catch (error) {
      if (!(error instanceof RolloutError) || error.type !== 'InvalidTask') throw error;
      onBad({ file, line, problem: messageOf(error) });
    }
  }
}

const isId = (value: unknown) => typeof value === 'string' || typeof value === 'number';

function taskOf(fields: Fields, id: string, handler: string): Task {
  const task = Task.safeParse({ handler, id, data: fields });
  if (task.success) return task.data;
  throw new RolloutError('InvalidTask', problemsOf(task.error));
}
