import type { Command } from 'commander';
import type { Config } from '../config/load.ts';
import { type EvalOptions, evalCommand } from './commands/eval.ts';
import { type GradeOptions, gradeCommand } from './commands/grade.ts';
import { handlerCommand } from './commands/handler-init.ts';
import { handlersCommand } from './commands/handlers.ts';
import { tasksCommand } from './commands/tasks.ts';
import type { Output } from './output.ts';

/** Adds a command whose action gets the configuration and an output. */
export type AddCommand = (
  usage: string,
  description: string,
  action: (
    config: Config,
    output: Output,
    args: string[],
    flags: Record<string, unknown>,
  ) => Promise<number> | number,
) => Command;

/** The commands about kinds of tasks, their files, their graders, and how good a policy is at them. */
export function addTaskCommands(add: AddCommand, count: (text: string) => number): void {
  add('handlers', 'list the kinds of task with their schema', (config, output) =>
    handlersCommand(config, output),
  );
  add(
    'handler <action> <name>',
    'init: write a task type of your own, with a test',
    (_config, output, args) => handlerCommand(args, output),
  );
  add('tasks <action> <file>', 'check: read a file of tasks and run nothing', (config, output, args, flags) =>
    tasksCommand(config, args, flags.handler as string, output),
  ).requiredOption('--handler <name>', 'kind of task');
  add('grade', 'grade recorded answers without a rollout', (config, output, _args, flags) =>
    gradeCommand(config, flags as unknown as GradeOptions, output),
  )
    .requiredOption('--tasks <file>', 'tasks: JSONL or Parquet')
    .requiredOption('--handler <name>', 'kind of task')
    .requiredOption(
      '--responses <file>',
      'lines of {"task_id", "response"}; a task without an id has its line number',
    )
    .option('--concurrency <n>', 'grades at once', count, 4)
    .option('--out <file>', 'write the lines here instead of standard output');
  add('eval', 'how good a policy is: pass@k, rewards, tools, tokens', (config, output, _args, flags) =>
    evalCommand(config, flags as EvalOptions, output),
  )
    .option('--tasks <file>', 'run these tasks: JSONL or Parquet')
    .option('--handler <name>', 'kind of task')
    .option('--samples <k>', 'rollouts of each task', count, 1)
    .option('--limit <n>', 'take only the first tasks', count)
    .option('--concurrency <n>', 'rollouts open at once', count, 64)
    .option('--batch <id>', 'id of the batch; given again, it goes on where it was')
    .option('--out <file>', 'keep the trajectories here')
    .option('--from <file>', 'run nothing: trajectories that were recorded')
    .option('--compare <file>', 'a second file of trajectories: a paired test by task');
}
