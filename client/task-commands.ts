import type { Command } from 'commander';
import type { Config } from '../config/load.ts';
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

/** The commands about kinds of tasks, their files and their graders; none needs a running stack. */
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
}
