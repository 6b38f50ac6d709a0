import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import type { ExecResult } from '../../../contracts/sandbox.ts';
import type { Backend, Handle } from '../backends/backend.ts';
import { processInfo, signal, startedWith } from '../processes.ts';
import { BoundedOutput } from '../shells/bounded-output.ts';
import { limitOfSignal } from './limit.ts';

/** Milliseconds that a program's output may stay open after its end before what holds it is killed. */
const OUTPUT_GRACE_MS = 50;
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
export async function execute(backend: Backend, handle: Handle, program: OneOff): Promise<OneOffEnd> {
  const started = performance.now();
  const mark = randomBytes(8).toString('hex');
  const { file, args, env } = backend.enter(handle, {
    argv: program.argv,
    cwd: program.cwd,
    environment: { ...program.environment, [MARK]: mark },
  });
  const stdin = program.stdin === null ? 'ignore' : 'pipe';
  const child = spawn(file, args, { env, cwd: '/', detached: true, stdio: [stdin, 'pipe', 'pipe'] });
  const [stdout, stderr] = [
    new BoundedOutput(program.maxOutputBytes),
    new BoundedOutput(program.maxOutputBytes),
  ];
  child.stdout?.on('data', (chunk: Buffer) => stdout.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => stderr.push(chunk));
  child.stdin?.on('error', () => {}); // it did not read to the end, which is its own affair
  child.stdin?.end(program.stdin);
  const closed = once(child, 'close');
  closed.catch(() => {}); // awaited below
  const kill = (): void => killTree(backend, handle, child, mark);
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    kill();
  }, program.timeoutMs);
  program.signal.addEventListener('abort', kill);
  if (program.signal.aborted) kill();
  let grace: NodeJS.Timeout | undefined;
  child.once('exit', () => {
    grace = setTimeout(kill, OUTPUT_GRACE_MS);
  });
  try {
    const [code, name] = (await closed) as [number | null, string | null];
    return {
      exitCode: code,
      signal: name,
      timedOut,
      limit: limitOfSignal(name),
      stdout,
      stderr,
      ms: performance.now() - started,
    };
  } catch (error) {
    throw new RolloutError('SandboxFailed', `${file}: ${messageOf(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
    clearTimeout(grace);
    program.signal.removeEventListener('abort', kill);
  }
}

/** Kills what a program started: its session, its descendants, and what carries its mark. */
function killTree(backend: Backend, handle: Handle, child: ChildProcess, mark: string): void {
  const root = child.pid;
  if (root === undefined) return;
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
  // The host's side ends with the program; before that has started, there is nothing else to kill.
  if (processInfo(root)?.zombie === false && child.exitCode === null) signal(root, 'SIGKILL');
}
