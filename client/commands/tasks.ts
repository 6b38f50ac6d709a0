import { loadHandlers } from '../../activities/handlers/registry.ts';
import type { Config } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { Output } from '../output.ts';
import { readTasks } from '../tasks-file.ts';

/**
 * `rollouts tasks check <file>`: reads a file of tasks and runs nothing.
 * @returns the exit code: 0 if every row is a task
 */
export async function tasksCommand(
  config: Config,
  [action, file]: readonly string[],
  handler: string,
  output: Output,
): Promise<number> {
  if (action !== 'check' || file === undefined) {
    throw new RolloutError('InvalidRequest', `tasks ${action}: expected "check <file>"`);
  }
  const registry = await loadHandlers(config.workers, { python: () => loadTools().python });
  const bad: { line: number; problem: string }[] = [];
  let good = 0;
  const tasks = readTasks(file, handler, registry, ({ line, problem }) => {
    bad.push({ line, problem });
    output.note(`${file}:${line}: ${problem}`);
  });
  for await (const _ of tasks) good++;
  output.result({ file, handler, tasks: good, bad }, () => `${good} tasks, ${bad.length} malformed rows`);
  return bad.length === 0 && good > 0 ? 0 : 1;
}
