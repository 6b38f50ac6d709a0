import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import type { ExecResult } from '../../../contracts/sandbox.ts';
import type { Backend, Handle } from '../backends/backend.ts';
import { limitOfSignal } from '../limits/signals.ts';
import { openFiles, signal, startedWith } from '../processes.ts';
import { BoundedOutput } from '../shells/bounded-output.ts';
import type { OutputFolder } from '../shells/output-folder.ts';
import { makeStreams } from './streams.ts';

/** Milliseconds that a program's output may stay open after its end, before what holds it is killed. */
const OUTPUT_GRACE_MS = 50;
/** Milliseconds after its end at which what could not be found and still holds the output is waited for no more. */
const LAST_OUTPUT_MS = 3000;
/** Marks the processes of one program, so that those in sessions of their own are found too. */
const MARK = 'ROLLOUT_EXEC';

/** A program to be run once. */
export interface OneOff {
  readonly argv: readonly string[];
  readonly stdin: Buffer | null;
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
  /** Aborted: the program is killed as on a timeout. */
  readonly signal: AbortSignal;
}

/** Where a program is to be run. */
export interface Place {
  readonly backend: Backend;
  readonly handle: Handle;
  /** Folder of the host for passing things, out of the agent's reach. */
  readonly folder: string;
  /** Takes what is more than is kept; absent: nothing does. */
  readonly outputs?: OutputFolder;
}

/** What a program left; its output as bytes is in the two collectors. */
export interface OneOffEnd extends Omit<ExecResult, 'stdout' | 'stderr'> {
  readonly stdout: BoundedOutput;
  readonly stderr: BoundedOutput;
}

/**
 * Runs one program inside to its end. All that it started ends with it, whether it ended by itself, ran out
 * of time or was aborted.
 * @throws RolloutError SandboxFailed when it cannot be started at all
 */
export async function execute(place: Place, program: OneOff): Promise<OneOffEnd> {
  const started = performance.now();
  const mark = randomBytes(8).toString('hex');
  const { child, streams } = await start(place, program, mark);
  const { outputs } = place;
  const collector = (stream: Readable): BoundedOutput =>
    new BoundedOutput(program.maxOutputBytes, outputs && (() => outputs.begin(() => stream.resume())));
  const [stdout, stderr] = [collector(streams.stdout), collector(streams.stderr)];
  const kill = (): void => killTree(place, child, mark);
  let flooded = false;
  const collect = (stream: Readable, output: BoundedOutput): void => {
    stream.on('data', (chunk: Buffer) => {
      if (!output.push(chunk)) stream.pause();
      if (flooded || output.totalBytes <= place.handle.spec.limits.outputBytes) return;
      flooded = true;
      kill();
    });
  };
  collect(streams.stdout, stdout);
  collect(streams.stderr, stderr);
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    kill();
  }, program.timeoutMs);
  program.signal.addEventListener('abort', kill);
  if (program.signal.aborted) kill();
  let grace: NodeJS.Timeout | undefined;
  // Whatever still holds the output after the program's end is killed until nothing does.
  child.once('exit', () => {
    const until = performance.now() + LAST_OUTPUT_MS;
    grace = setInterval(() => {
      kill();
      killHolders(place, mark);
      if (performance.now() < until) return;
      // A stream that stands still waits for the disk, and has more to give.
      for (const stream of [streams.stdout, streams.stderr]) {
        if (flooded || !stream.isPaused()) stream.destroy();
      }
    }, OUTPUT_GRACE_MS);
  });
  try {
    const [[code, name]] = (await Promise.all([
      once(child, 'exit'),
      once(streams.stdout, 'close'),
      once(streams.stderr, 'close'),
    ])) as unknown as [[number | null, string | null]];
    return {
      exitCode: code,
      signal: name,
      timedOut,
      limit: flooded ? 'output' : limitOfSignal(name),
      stdout,
      stderr,
      ms: performance.now() - started,
    };
  } catch (error) {
    throw new RolloutError('SandboxFailed', `${program.argv[0]}: ${messageOf(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
    clearInterval(grace);
    program.signal.removeEventListener('abort', kill);
    streams.stdout.destroy();
    streams.stderr.destroy();
  }
}

async function start({ backend, handle, folder }: Place, program: OneOff, mark: string) {
  try {
    const streams = await makeStreams(folder, mark, program.stdin, handle.ownerUid);
    try {
      const { file, args, env } = backend.enter(handle, {
        argv: program.argv,
        cwd: program.cwd,
        environment: { ...program.environment, [MARK]: mark },
      });
      return { child: spawn(file, args, { env, cwd: '/', detached: true, stdio: streams.stdio }), streams };
    } finally {
      streams.handedOver();
    }
  } catch (error) {
    if (error instanceof RolloutError) throw error;
    throw new RolloutError('SandboxFailed', `${program.argv[0]}: ${messageOf(error)}`, { cause: error });
  }
}

/** Kills what a program started: its session, its descendants, and what carries its mark. */
function killTree({ backend, handle }: Place, child: ChildProcess, mark: string): void {
  const root = child.pid;
  if (root === undefined) return;
  // The host's side first: until it has started the program there is nothing else, and then that has the mark.
  if (child.exitCode === null && child.signalCode === null) signal(root, 'SIGKILL');
  // Twice, for what was forked while the first list was read.
  for (let round = 0; round < 2; round++) {
    const tree = new Set([root]);
    const all = backend.processes(handle);
    for (let before = 0; before !== tree.size; ) {
      before = tree.size;
      for (const { pid, parent, session } of all) if (tree.has(parent) || session === root) tree.add(pid);
    }
    for (const { pid } of all) {
      if (tree.has(pid) || startedWith(pid, `${MARK}=${mark}`)) signal(pid, 'SIGKILL');
    }
  }
}

/**
 * Kills what has a program's output open: also what put off its mark and its parents, or took the output from it.
 * {@link makeStreams} gives it a name with the mark.
 */
function killHolders({ backend, handle }: Place, mark: string): void {
  for (const { pid } of backend.processes(handle)) {
    if (openFiles(pid).some((file) => file.includes(mark))) signal(pid, 'SIGKILL');
  }
}
