import { createReadStream } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { HandlerRegistry } from '../activities/handlers/registry.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import { problemsOf } from '../contracts/problems.ts';
import { Task } from '../contracts/task.ts';

/** A line that holds no task: where it is and what is wrong with it. */
export interface BadLine {
  readonly file: string;
  readonly line: number;
  readonly problem: string;
}

/** JSON.stringify writes what is no character as an escape; pairs and escaped backslashes are none. */
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/i;

/** Fields that data sets name their tasks by, in this order. */
const ID_FIELDS = ['id', 'task_id', 'instance_id', 'unique_id'] as const;

/**
 * Reads tasks from a JSONL file, one at a time: a file of any length takes no more memory than its ids. A
 * line that is no task, or repeats an id, is told to `onBad` and stops nothing else.
 * @throws RolloutError InvalidRequest if the file can't be read.
 */
export async function* readTasks(
  file: string,
  handler: string,
  registry: HandlerRegistry,
  onBad: (bad: BadLine) => void,
): AsyncIterable<Task> {
  registry.get(handler); // an unknown handler is one error, not one for each line
  const seen = new Map<string, number>();
  let line = 0;
  for await (const raw of linesOf(file)) {
    line++;
    const text = line === 1 ? raw.replace(/^\uFEFF/, '') : raw; // a byte order mark is no part of the JSON
    if (text.trim() === '') continue;
    try {
      const task = taskOf(text, `${path.basename(file).replace(/\.jsonl?$/, '')}-${line}`, handler);
      await registry.admit(task);
      const earlier = seen.get(task.id);
      if (earlier !== undefined)
        throw new RolloutError('InvalidTask', `id: "${task.id}" is line ${earlier}'s`);
      seen.set(task.id, line);
      yield task;
    } catch (error) {
      if (!(error instanceof RolloutError) && !(error instanceof SyntaxError)) throw error;
      onBad({ file, line, problem: messageOf(error) });
    }
  }
}

function taskOf(text: string, fallbackId: string, handler: string): Task {
  const data: unknown = JSON.parse(text);
  if (data === null || typeof data !== 'object' || Array.isArray(data)) {
    throw new RolloutError('InvalidTask', 'expected a JSON object on the line');
  }
  const fields = data as Record<string, unknown>;
  const id = ID_FIELDS.map((field) => fields[field]).find(
    (value) => typeof value === 'string' || typeof value === 'number',
  );
  if (LONE_SURROGATE.test(JSON.stringify(data))) {
    throw new RolloutError('InvalidTask', 'a text holds half of a surrogate pair, which no tokenizer takes');
  }
  const task = Task.safeParse({ handler, id: id === undefined ? fallbackId : String(id), data: fields });
  if (task.success) return task.data;
  throw new RolloutError('InvalidTask', problemsOf(task.error));
}

async function* linesOf(file: string): AsyncIterable<string> {
  const stream = createReadStream(file, 'utf8');
  try {
    yield* createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY });
  } catch (error) {
    throw new RolloutError('InvalidRequest', `tasks file ${file}: ${messageOf(error)}`, { cause: error });
  } finally {
    stream.destroy();
  }
}
