import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import path from 'node:path';
import type { BatchResult } from '../../contracts/batch.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { GroupResult, TaskPlace } from '../../contracts/group.ts';
import { Task } from '../../contracts/task.ts';
import { byteLines } from '../byte-lines.ts';
import { readIfThere, spreadFolder, writeWhole } from '../trajectory/whole-files.ts';

/** Sets of tasks that a process remembers. */
const SETS_REMEMBERED = 4;

/**
 * What groups and batches keep in the store's folder: `tasks/<sha256>.jsonl`, sets of tasks that never change;
 * `groups/<2 hex digits>/<id>.json` and `batches/<2 hex digits>/<id>.json`, results, once each; and beside a batch's,
 * `<id>.json.taken`, which batch took over what it left.
 */
export class GroupStore {
  readonly #folder: string;
  readonly #sets = new Map<string, Promise<readonly Task[]>>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Keeps a set of tasks; the same tasks are the same set. @throws RolloutError StoreFailed */
  async putTasks(tasks: readonly Task[]): Promise<{ set: string; tasks: number }> {
    const text = tasks.map((task) => `${JSON.stringify(task)}\n`).join('');
    const set = createHash('sha256').update(text).digest('hex');
    await writeWhole(this.#setFile(set), text, { exclusive: true });
    return { set, tasks: tasks.length };
  }

  /** @throws RolloutError InvalidRequest if there is no such task */
  async task({ set, row }: TaskPlace): Promise<Task> {
    const found = (await this.#tasks(set))[row];
    if (found) return found;
    throw new RolloutError('InvalidRequest', `task: set ${set} has no row ${row}`);
  }

  /** Keeps a group's result unless it has one; the one that stands. @throws RolloutError StoreFailed */
  putGroup(result: GroupResult): Promise<GroupResult> {
    return this.#putOnce(this.#file('groups', result.groupId), result);
  }

  getGroup(groupId: string): Promise<GroupResult | undefined> {
    return this.#get(this.#file('groups', groupId));
  }

  /** Keeps a batch's result unless it has one; the one that stands. @throws RolloutError StoreFailed */
  putBatch(result: BatchResult): Promise<BatchResult> {
    return this.#putOnce(this.#file('batches', result.batchId), result);
  }

  getBatch(batchId: string): Promise<BatchResult | undefined> {
    return this.#get(this.#file('batches', batchId));
  }

  /** Whether what batch `from` left is batch `to`'s from now on: the first that asks has all of it for good. */
  async takeSurplus(from: string, to: string): Promise<boolean> {
    const taken = await this.#putOnce(`${this.#file('batches', from)}.taken`, { batchId: to });
    return taken.batchId === to;
  }

  #tasks(set: string): Promise<readonly Task[]> {
    const known = this.#sets.get(set);
    if (known) return known;
    const reading = readTasks(this.#setFile(set));
    this.#sets.set(set, reading);
    reading.catch(() => this.#sets.delete(set)); // who asked has the error
    for (const oldest of [...this.#sets.keys()].slice(0, -SETS_REMEMBERED)) this.#sets.delete(oldest);
    return reading;
  }

  async #putOnce<T>(file: string, value: T): Promise<T> {
    const isNew = await writeWhole(file, `${JSON.stringify(value, null, 2)}\n`, { exclusive: true });
    return isNew ? value : ((await this.#get<T>(file)) as T);
  }

  async #get<T>(file: string): Promise<T | undefined> {
    const text = await readIfThere(file);
    return text === undefined ? undefined : (JSON.parse(text) as T);
  }

  #setFile(set: string): string {
    return path.join(this.#folder, 'tasks', `${set}.jsonl`);
  }

  #file(kind: 'groups' | 'batches', id: string): string {
    return path.join(this.#folder, kind, spreadFolder(id), `${id}.json`);
  }
}

async function readTasks(file: string): Promise<readonly Task[]> {
  const tasks: Task[] = [];
  try {
    for await (const line of byteLines(createReadStream(file))) {
      tasks.push(Task.parse(JSON.parse(line.toString())));
    }
  } catch (error) {
    throw new RolloutError('StoreFailed', `cannot read tasks from ${file}: ${String(error)}`, {
      cause: error,
    });
  }
  return tasks;
}
