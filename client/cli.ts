import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError, Option } from 'commander';
import { withNothingInherited } from '../config/inherited.ts';
import { type Config, loadConfig } from '../config/load.ts';
import { loadTools } from '../config/tools.ts';
import { FAILURES, messageOf, RolloutError } from '../contracts/failures.ts';
import { CANCEL_REASONS } from '../contracts/signals.ts';
import { type ArchiveOptions, archiveCommand } from './commands/archive.ts';
import { cancelBatch, showBatch } from './commands/batch.ts';
import { type BatchRunOptions, batchRunCommand } from './commands/batch-run.ts';
import { doctorCommand } from './commands/doctor.ts';
import { type DrainOptions, drainCommand } from './commands/drain.ts';
import { imageCommand } from './commands/image.ts';
import { configCommand, listCommand, showCommand } from './commands/inspect.ts';
import { keyCommand } from './commands/key.ts';
import { leaksCommand } from './commands/leaks.ts';
import { prepareServerCommand } from './commands/prepare-server.ts';
import { runCommand } from './commands/run.ts';
import { cancelCommand, pauseCommand } from './commands/steer.ts';
import { tokenCommand } from './commands/token.ts';
import { topCommand } from './commands/top.ts';
import { upCommand } from './commands/up.ts';
import { verifyCommand } from './commands/verify.ts';
import { makeOutput } from './output.ts';
import { addPoolCommands } from './pool-commands.ts';
import { printable } from './printable.ts';
import { serversOf } from './server-flags.ts';
import { type AddCommand, addTaskCommands } from './task-commands.ts';

/** Flags that every command has; they set configuration values. */
interface CommonFlags {
  json?: boolean;
  config?: string;
  sandbox?: string;
  handlers?: string[];
  stateDir?: string;
  server?: string[];
  tokenizer?: string;
}

/** Runs the `rollouts` command. @returns the exit code. */
export async function main(argv: readonly string[]): Promise<number> {
  let code = 0;
  try {
    await makeProgram((ended) => {
      code = ended;
    }).parseAsync([...argv]);
    return code;
  } catch (error) {
    process.stderr.write(`rollouts: ${printable(explain(error))}\n`);
    return 2;
  }
}

/** The command with all its flags; `done` is told the exit code. */
export function makeProgram(done: (code: number) => void): Command {
  const program = new Command('rollouts')
    .description('Durable rollouts for reinforcement learning of LLM agents')
    .configureHelp({ showGlobalOptions: true })
    .option('--json', 'print the result as JSON on standard output')
    .option('--config <file>', 'configuration file (default: rollouts.toml in the checkout)')
    .option(
      '--sandbox <backend>',
      'bubblewrap, apptainer, or process: NO isolation, for tasks and models you trust',
    )
    .option('--handlers <module...>', 'modules of further handlers: a path or a package name')
    .option(
      '--server <kind=url...>',
      'LLM servers to begin with: vllm, sglang, tensorrt-llm, prorl or llama.cpp, and an address',
    )
    .option('--tokenizer <folder>', 'tokenizer and chat template of the servers that are named')
    .option('--state-dir <folder>', 'folder of server database, sandboxes, store and logs');

  const addTo =
    (parent: Command): AddCommand =>
    (usage, description, action) =>
      parent
        .command(usage)
        .description(description)
        .action(async (...given: unknown[]) => {
          const command = given.at(-1) as Command;
          const flags = command.optsWithGlobals() as CommonFlags & Record<string, unknown>;
          done(await action(configOf(flags), makeOutput(flags.json === true), command.args, flags));
        });

  const add = addTo(program);

  add(
    'up',
    'start everything on this machine, run the sample batch, stay until Ctrl-C',
    (config, output, _, flags) =>
      upCommand(
        config,
        { exit: flags.exit === true, sample: flags.sample !== false, samples: flags.samples as number },
        output,
      ),
  )
    .option('--exit', 'stop after the sample batch')
    .option('--no-sample', 'start everything and run nothing')
    .option('--samples <n>', 'rollouts of each sample task', count, 2);

  add('run', 'run a file of tasks', (config, output, _, flags) =>
    runCommand(config, flags as unknown as Parameters<typeof runCommand>[1], output),
  )
    .requiredOption('--tasks <file>', 'tasks, one JSON object per line')
    .requiredOption('--handler <name>', 'kind of task')
    .option('--samples <n>', 'rollouts of each task', count, 1)
    .option('--limit <n>', 'take only the first tasks', count)
    .option('--concurrency <n>', 'rollouts open at once', count, 64)
    .option('--batch <id>', 'id of the batch; given again, it goes on where it was')
    .option('--out <file>', 'write trajectories here, one JSON line each');

  add('show <rollout>', 'show one rollout: its record and its conversation', (config, output, [id]) =>
    showCommand(config, id as string, output),
  );

  add('list', 'list rollouts, newest first', (config, output, _, flags) => {
    const {
      batch: batchId,
      task: taskId,
      group: groupId,
      stage,
      outcome,
      host,
    } = flags as Record<string, string>;
    const filter = Object.entries({ batchId, taskId, groupId, stage, outcome, host }).filter(
      ([, value]) => value,
    );
    return listCommand(config, Object.fromEntries(filter), flags.limit as number, output);
  })
    .option('--batch <id>')
    .option('--group <id>')
    .option('--task <id>')
    .addOption(new Option('--stage <stage>').choices(['queued', 'run', 'paused', 'evaluate', 'ended']))
    .addOption(new Option('--outcome <outcome>').choices(['completed', 'truncated', 'cancelled', 'failed']))
    .option('--host <name>')
    .option('--limit <n>', 'at most so many', count, 50);

  add('cancel [rollout...]', 'end rollouts', (config, output, rolloutIds, flags) =>
    cancelCommand(config, { ...flags, rolloutIds }, flags.reason as (typeof CANCEL_REASONS)[number], output),
  )
    .option('--batch <id>', 'all of a batch')
    .option('--group <id>', 'all of a group')
    .option(
      '--below-version <n>',
      'of those, or of all, the ones that sampled under an older policy version',
      fromZero,
    )
    .addOption(new Option('--reason <reason>').choices([...CANCEL_REASONS]).default('user'));

  for (const [action, description] of [
    ['pause', 'make rollouts give their slots back; they keep their sandboxes'],
    ['resume', 'let paused rollouts go on'],
  ] as const) {
    add(`${action} [rollout...]`, description, (config, output, rolloutIds, flags) =>
      pauseCommand(config, action, { ...flags, rolloutIds }, output),
    )
      .option('--batch <id>', 'all open ones of a batch')
      .option('--group <id>', 'all open ones of a group')
      .option('--task <id>', 'all open ones of a task; with others of these, those that all of them name')
      .option('--kind <handler>', 'all open ones of a kind of task')
      .option('--host <name>', 'all open ones whose sandboxes are on a host');
  }

  add(
    'verify <file>',
    'prove a file of trajectories; with --server also by scoring its tokens again',
    (config, output, [file], flags) => {
      const { tokens, tolerance } = flags as { tokens: number; tolerance?: number };
      const rescore = flags.rescore === true || flags.server !== undefined;
      const options = { rescore, tokens, ...(tolerance === undefined ? {} : { tolerance }) };
      return verifyCommand(config, file as string, options, output);
    },
  )
    .showHelpAfterError(
      'A flag that takes several values takes what follows it: name the file before --server.',
    )
    .option('--rescore', 'score again on the servers of the running stack')
    .option('--tokens <n>', 'tokens of each sequence to score again, spread evenly', count, 32)
    .option('--tolerance <nats>', 'largest difference of log-probabilities that is no problem', Number);

  add('top', 'how pools, queues, hosts and batches stand, live; q ends it', (config, output, _, flags) =>
    topCommand(config, flags as unknown as Parameters<typeof topCommand>[1], output),
  )
    .option('--once', 'show it once and end', false)
    .option('--seconds <n>', 'look again after so many', count, 2);

  add('config', 'print the effective configuration and where each value comes from', configCommand);
  addTaskCommands(add, count);
  const pool = program.command('pool').description('the LLM servers that rollouts are sampled from');
  addPoolCommands(addTo(pool), fromZero);
  const addToBatch = addTo(program.command('batch').description('batches of groups, whoever has begun them'));
  addToBatch('run', 'begin a batch over a file of tasks and follow it', (config, output, _args, flags) =>
    batchRunCommand(config, flags as unknown as BatchRunOptions, output),
  )
    .requiredOption('--tasks <file>', 'tasks: JSONL or Parquet')
    .requiredOption('--handler <name>', 'kind of task')
    .requiredOption('--groups <n>', 'groups that it is to have', count)
    .option('--samples <n>', 'rollouts of each task', count, 8)
    .option('--batch <id>', 'id of the batch; given again, it is taken up where it is')
    .option('--keep-equal', 'groups with equal rewards count as well')
    .option('--out <file>', 'write trajectories here, one JSON line each');
  addToBatch('show <batch>', 'how a batch stands, or its result', (config, output, [batch]) =>
    showBatch(config, batch as string, output),
  );
  addToBatch('cancel <batch>', 'end a batch and all that it has begun', (config, output, [batch], flags) =>
    cancelBatch(config, batch as string, flags.reason as (typeof CANCEL_REASONS)[number], output),
  ).addOption(new Option('--reason <reason>').choices([...CANCEL_REASONS]).default('user'));
  add(
    'doctor',
    'which ways to isolate work on this machine, and what each guarantees',
    (config, output, _args, flags) =>
      flags.leaks ? leaksCommand(config, output) : doctorCommand(config, output),
  ).option('--leaks', 'look for what sandboxes that have ended left behind instead');
  add(
    'image <action> <source>',
    'build: make an image for sandboxes from a definition, an OCI or Docker archive or a folder',
    (config, output, args, flags) => imageCommand(config, args, flags as { out?: string }, output),
  ).option('--out <file>', 'put a copy of the image here');
  add('worker', 'run workers in this process', (_config, _output, _args, flags) =>
    runEntry('../workers/main.ts', flags.roles ? [flags.roles as string] : [], flags),
  ).option('--roles <list>', 'of workflow,init,run,eval; all if absent');
  add('gateway', 'run the HTTP service for trainers', (_config, _output, _args, flags) =>
    runEntry('../gateway/main.ts', [], flags),
  );
  add(
    'prepare-server',
    'make namespace, retention, search attributes and schedules on a Temporal server; again at each upgrade',
    (config, output, _args, flags) => prepareServerCommand(config, flags.retention as number, output),
  ).option('--retention <days>', 'days that ended rollouts stay in Temporal', count, 7);
  add(
    'archive',
    'move ledgers and trajectories of rollouts that ended long ago from the store to archive.to',
    (config, output, _args, flags) => archiveCommand(config, flags as unknown as ArchiveOptions, output),
  )
    .option('--older-than <days>', 'instead of archive.afterDays', days)
    .option('--dry-run', 'move nothing, say what would be', false);
  add(
    'codec-server',
    'open encrypted payloads for the Temporal UI and CLI',
    (_config, _output, _args, flags) => runEntry('../gateway/codec-server/main.ts', [], flags),
  );
  const key = addTo(
    program.command('key').description('the keys that payloads in Temporal are encrypted with'),
  );
  key('add <id>', 'make a new key; it only decrypts until it is used', (config, output, [id]) =>
    keyCommand(config, 'add', id as string, output),
  );
  key('use <id>', 'encrypt with this key from now on', (config, output, [id]) =>
    keyCommand(config, 'use', id as string, output),
  );
  add('token <name>', 'make a bearer token for the HTTP service', (config, output, args, flags) =>
    tokenCommand(config, args[0] as string, (flags as { scopes: string }).scopes, output),
  ).option('--scopes <list>', 'of read,write,admin', 'read,write');
  const host = add('host', 'run the sandbox host of this machine', (_config, _output, _args, flags) =>
    runEntry('../workers/sandbox-host/main.ts', [], flags, (argv) =>
      withNothingInherited(loadTools().python, argv),
    ),
  );
  addTo(host)(
    'drain',
    'let this machine’s sandbox host take no new rollout; those that run end, or go on on other hosts',
    (config, output, _args, flags) => drainCommand(config, flags as unknown as DrainOptions, output),
  )
    .option('--within <seconds>', 'how long they may take to end', fromZero, 900)
    .option('--moving <seconds>', 'how long the rest may take to go on elsewhere; 0: it stays', fromZero, 900)
    .option('--undo', 'take rollouts again', false);
  return program;
}

function count(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError('expected a whole number from 1');
  return value;
}

function days(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('expected days, more than 0');
  return value;
}

function fromZero(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError('expected a whole number from 0');
  return value;
}

function configOf(flags: CommonFlags): Config {
  if (flags.sandbox === 'process') {
    process.stderr.write(
      'WARNING: --sandbox=process isolates nothing: what the model writes runs as you, with your files and network.\n',
    );
  }
  return loadConfig({
    ...(flags.config === undefined ? {} : { file: flags.config }),
    flags: {
      ...(flags.sandbox === undefined ? {} : { sandbox: { backend: flags.sandbox } }),
      ...(flags.handlers === undefined ? {} : { workers: { handlers: flags.handlers } }),
      ...(flags.stateDir === undefined ? {} : { state: { folder: flags.stateDir } }),
      ...(flags.server === undefined ? {} : { llm: { servers: serversOf(flags) } }),
    },
  });
}

/** Runs a process entry in a process of its own, in the foreground, with the same flags. */
async function runEntry(
  file: string,
  args: string[],
  flags: CommonFlags,
  wrapped = (argv: [string, ...string[]]) => argv,
): Promise<number> {
  const entry = fileURLToPath(new URL(file, import.meta.url));
  const env = {
    ...process.env,
    ...(flags.config === undefined ? {} : { ROLLOUTS_CONFIG: flags.config }),
    ...(flags.sandbox === undefined ? {} : { ROLLOUTS_SANDBOX_BACKEND: flags.sandbox }),
    ...(flags.stateDir === undefined ? {} : { ROLLOUTS_STATE_FOLDER: flags.stateDir }),
    ...(flags.handlers === undefined ? {} : { ROLLOUTS_WORKERS_HANDLERS: JSON.stringify(flags.handlers) }),
  };
  const node = [process.execPath, '--import', import.meta.resolve('tsx'), entry] as const;
  const [command, ...argv] = wrapped([...node, ...args]);
  const child = spawn(command, argv, { env, stdio: 'inherit' });
  const forward = (signal: NodeJS.Signals) => child.kill(signal);
  process.on('SIGTERM', forward);
  process.on('SIGINT', () => {}); // the terminal sends it to the child as well
  return new Promise((resolve, reject) => {
    child.once('exit', (status) => resolve(status ?? 1));
    child.once('error', ({ message }) => reject(new Error(`${command} could not be started: ${message}`)));
  });
}

/** An error as a person wants it: the message, and what to do where the failure table says. */
function explain(error: unknown): string {
  // What is wrong with a request is in the message; the table's advice is for failures of rollouts.
  if (!(error instanceof RolloutError) || error.type === 'InvalidRequest') return messageOf(error);
  return `${error.message}\n  ${FAILURES[error.type].advice}`;
}
