import { type ChildProcess, spawn } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { START_MS } from '../left-overs.ts';
import {
  countPidNamespaces,
  type ProcessInfo,
  pidNamespace,
  processIds,
  processInfo,
  SANDBOX_VARIABLE,
  signal,
} from '../processes.ts';
import type { Runtime } from './apptainer-runtime.ts';
import { checkReport, isReady } from './apptainer-scripts.ts';
import type { Creation } from './backend.ts';
import { SYSTEM_PATH } from './staging.ts';

/** Milliseconds that killed processes may take to be gone. */
const DEATH_MS = 5000;
/** Threads that the runtime and its helpers may yet start. */
const SPARE_THREADS = 4;
/** Most of what the programs say that is kept. */
const MAX_TEXT = 1024 ** 2;

/** A sandbox that stands. */
export interface Started {
  readonly outer: ChildProcess;
  readonly first: ProcessInfo;
  /** Identity of its PID namespace. */
  readonly namespace: string;
  /** All processes outside that hold it up: supervisor, runtime, helpers of file systems. */
  readonly anchors: readonly ProcessInfo[];
  /** Threads of the anchors that the kernel counts as the sandbox's: they are in its user namespace. */
  readonly tasksOutside: number;
  readonly ended: Promise<string>;
}

/**
 * Runs `argv` (supervisor and all) and waits until the sandbox stands. `depth`: see {@link Runtime.depth}.
 * @throws RolloutError SandboxFailed in the runtime's own words; nothing is left then
 */
export async function startApptainer(
  { sandboxId, started }: Pick<Creation, 'sandboxId' | 'started'>,
  argv: readonly string[],
  depth: Runtime['depth'],
): Promise<Started> {
  const [file, ...args] = argv as [string, ...string[]];
  const env = { PATH: SYSTEM_PATH, [SANDBOX_VARIABLE]: sandboxId };
  // A process group of its own: the terminal's ^C is for the host, which ends sandboxes in order.
  const outer = spawn(file, args, { env, cwd: '/', detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
  const supervisor = processInfo(outer.pid ?? 0);
  if (supervisor) started?.(supervisor);
  let [text, errors] = ['', ''];
  outer.stdin.on('error', () => {}); // the sandbox ended first: `ended` tells
  outer.stderr.on('data', (chunk: Buffer) => {
    errors = (errors + chunk).slice(-MAX_TEXT);
  });
  const ended = new Promise<string>((resolve) => {
    outer.once('error', (error) => resolve(messageOf(error)));
    outer.once('exit', (code, name) => resolve(problemIn(errors) || `it ended (${name ?? code})`));
  });
  const ready = new Promise<undefined>((resolve) => {
    outer.stdout.on('data', (chunk: Buffer) => {
      text = (text + chunk).slice(-MAX_TEXT);
      if (isReady(text)) resolve(undefined);
    });
  });
  const late = new AbortController();
  const timer = delay(START_MS, `it was not there after ${START_MS / 1000} s`, { signal: late.signal });
  timer.catch(() => {}); // aborted below
  let anchors: ProcessInfo[] = [];
  try {
    const failure = await Promise.race([ready, ended, timer]);
    if (failure !== undefined) throw new RolloutError('SandboxFailed', failure);
    const found = holders(outer.pid ?? 0, depth);
    anchors = found.anchors;
    const { first, namespace } = found;
    checkReport(text);
    if (!first || namespace === null) {
      const why = outer.exitCode === null ? 'it shares the processes of the host' : await ended;
      throw new RolloutError('SandboxFailed', why);
    }
    checkApart(first);
    for (const stream of [outer.stdout, outer.stderr] as Readable[]) stream.destroy();
    const users = namespaceOf(first.pid, 'user');
    const tasksOutside = anchors
      .filter(({ pid }) => namespaceOf(pid, 'user') === users)
      .reduce((sum, { threads }) => sum + threads, SPARE_THREADS);
    const all = [first, ...anchors];
    return { outer, first, namespace, anchors: all, tasksOutside, ended };
  } catch (error) {
    outer.stdin.destroy();
    await Promise.race([ended, delay(DEATH_MS)]);
    outer.kill('SIGKILL');
    await untilGone(anchors, sandboxId);
    throw new RolloutError('SandboxFailed', `apptainer could not make a sandbox: ${messageOf(error)}`, {
      cause: error,
    });
  } finally {
    late.abort();
  }
}

/** Kills what is left of these and waits until nothing is. @throws RolloutError SandboxFailed */
export async function untilGone(processes: readonly ProcessInfo[], sandboxId: string): Promise<void> {
  const deadline = performance.now() + DEATH_MS;
  for (let left = processes.filter(isAlive); left.length > 0; left = left.filter(isAlive)) {
    if (performance.now() > deadline) {
      throw new RolloutError('SandboxFailed', `processes that hold up sandbox ${sandboxId} do not die`);
    }
    for (const { pid } of left) signal(pid, 'SIGKILL');
    await delay(5);
  }
}

/** True if this very process has not ended. */
export function isAlive({ pid, startTicks }: ProcessInfo): boolean {
  const info = processInfo(pid);
  return info !== null && !info.zombie && info.startTicks === startTicks;
}

/** What descends from the supervisor: the sandbox's first process, and what is outside the sandbox. */
function holders(
  supervisor: number,
  depth: number,
): {
  first: ProcessInfo | undefined;
  namespace: string | null;
  anchors: ProcessInfo[];
} {
  const all = processIds()
    .map((pid) => processInfo(pid))
    .filter((info) => info !== null);
  const tree = new Set([supervisor]);
  for (let before = 0; before !== tree.size; ) {
    before = tree.size;
    for (const { pid, parent } of all) if (tree.has(parent)) tree.add(pid);
  }
  const own = countPidNamespaces(process.pid);
  const inTree = all.filter(({ pid }) => tree.has(pid));
  const isInside = ({ pid }: ProcessInfo): boolean => countPidNamespaces(pid) >= own + depth;
  const inside = inTree.filter(isInside);
  const first = inside.find(({ parent }) => !inside.some(({ pid }) => pid === parent));
  const anchors = inTree.filter((info) => !inside.includes(info));
  return { first, namespace: first ? pidNamespace(first.pid) : null, anchors };
}

/** Its settings may keep the runtime from what it was told. @throws RolloutError SandboxFailed */
function checkApart({ pid }: ProcessInfo): void {
  const shared = ['user', 'mnt', 'pid', 'net', 'ipc', 'uts'].filter((kind) => {
    const identity = namespaceOf(pid, kind);
    return identity === null || identity === namespaceOf(process.pid, kind);
  });
  if (shared.length === 0) return;
  throw new RolloutError('SandboxFailed', `it shares namespaces with the host: ${shared.join(', ')}`);
}

function namespaceOf(pid: number, kind: string): string | null {
  try {
    return readlinkSync(`/proc/${pid}/ns/${kind}`);
  } catch {
    return null; // ended, or not ours to look at
  }
}

/** What the runtime says went wrong; its last words if it does not say so. */
function problemIn(errors: string): string {
  const lines = errors
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !/^(INFO|DEBUG|VERBOSE)\b/.test(line));
  const fatal = lines.filter((line) => /^(FATAL|ERROR)|\bfuse: |squashfuse/.test(line));
  return (fatal.length > 0 ? fatal : lines).slice(-3).join('; ').slice(0, 2000);
}
