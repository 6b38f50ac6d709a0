import type { ChildProcess } from 'node:child_process';
import { RolloutError } from '../../../contracts/failures.ts';
import { INODE_BYTES } from '../limits/memory.ts';
import {
  type ProcessInfo,
  pidNamespace,
  processesOf,
  processIds,
  processInfo,
  signal,
} from '../processes.ts';
import type { Backend, Entry, Handle, Program } from './backend.ts';
import { runQuietly, untilDead } from './wait.ts';

/** Milliseconds that killed processes may take to be gone. */
const DEATH_MS = 5000;
/** Milliseconds after which what should have reaped them is ended as well. */
const REAP_MS = 500;

/** A sandbox of the kernel's namespaces. */
export interface Namespaced extends Handle {
  /** Its process 1. */
  readonly first: ProcessInfo;
  /** Identity of its PID namespace. */
  readonly namespace: string;
}

/** The beginning of an argv whose rest runs inside, with all privileges of the sandbox's user namespace. */
export function enterNamespaces(sandbox: Namespaced): string[] {
  return entering(sandbox, ['-U', '-m', '-p', '-n', '-i', '-u']);
}

function entering({ first, sandboxId }: Namespaced, namespaces: readonly string[]): string[] {
  // Its id may have been given to another process since.
  if (processInfo(first.pid)?.startTicks !== first.startTicks) {
    throw new RolloutError('SandboxLost', `sandbox ${sandboxId} has ended`);
  }
  return ['/usr/bin/nsenter', '-t', String(first.pid), ...namespaces, '--preserve-credentials', '--'];
}

/** Options of setpriv that give up every privilege which the sandbox's user namespace lends to a program. */
export function withoutPrivileges({ overModes }: Pick<Program, 'overModes'>): string[] {
  const kept = { read: ',+dac_read_search', write: ',+dac_override' };
  const bounds = `-all${overModes ? kept[overModes] : ''}`;
  return ['--no-new-privs', `--bounding-set=${bounds}`, '--inh-caps=-all', '--ambient-caps=-all'];
}

/**
 * Options of setpriv for a first process. What it keeps is worth nothing in a user namespace, but nobody may trace a
 * process that has more than he: an agent that could end the first one would get another attempt for a bad one.
 */
export const UNTRACEABLE: readonly string[] = [
  '--no-new-privs',
  ...['bounding-set', 'inh-caps', 'ambient-caps'].map((set) => `--${set}=-all,+wake_alarm`),
];

/** inotify's instances that one sandbox may have; the system counts those of all sandboxes of one owner together. */
const INOTIFY_INSTANCES = 32;

/**
 * A script that, in a sandbox's user namespace, has none made below it, in which what runs there would have privileges
 * again and could mount memory without bound; and that leaves to neighbours what the kernel counts by user.
 */
export const SEAL =
  'echo 0 > /proc/sys/user/max_user_namespaces && ' +
  `echo ${INOTIFY_INSTANCES} > /proc/sys/user/max_inotify_instances`;

/**
 * Files that a file system in memory of `bytes` may have: what the kernel takes for empty ones is an eighth more, which
 * killing would not free.
 */
function maxFiles(bytes: number): number {
  return Math.ceil(bytes / 8 / INODE_BYTES);
}

/** Runs {@link SEAL} for a first process. `asOwner` begins an argv of who owns it. Null, or what kept it from that. */
export async function seal(first: number, asOwner: readonly string[]): Promise<string | null> {
  const problem = await prepare(first, asOwner, ['-U'], SEAL);
  return problem && `its user namespace could not be sealed: ${problem}`;
}

/** Bounds the number of files in a sandbox's file systems in memory, whose sizes are `folders`; otherwise like {@link seal}. */
export async function boundFiles(
  first: number,
  asOwner: readonly string[],
  folders: Readonly<Record<string, number>>,
): Promise<string | null> {
  const mounts = Object.entries(folders).map(([folder, bytes]) => {
    const options = `remount,nosuid,nodev,nr_inodes=${maxFiles(bytes)}`;
    return `/usr/bin/mount -i --options-mode ignore -o ${options} ${folder}`;
  });
  const problem = await prepare(first, asOwner, ['-U', '-m'], mounts.join(' && '));
  return problem && `the files of its memory could not be bounded: ${problem}`;
}

/** Runs a script of the host's in namespaces of a first process. Null, or what it failed with. */
async function prepare(
  first: number,
  asOwner: readonly string[],
  namespaces: readonly string[],
  script: string,
): Promise<string | null> {
  const enter = ['/usr/bin/nsenter', '-t', String(first), ...namespaces, '--preserve-credentials', '--'];
  const [file, ...args] = [...asOwner, ...enter, '/bin/sh', '-c', script];
  const end = await runQuietly(file as string, args, {});
  return end.ok ? null : end.message;
}

/**
 * Runs `argv` on the host, by an ordinary user in the sandbox's user namespace, where nothing of its owner's is
 * unreadable.
 */
export function examineAs({ first, ownerUid }: Namespaced, argv: readonly string[]): Entry {
  const enter = ['/usr/bin/nsenter', '-t', String(first.pid), '-U', '--preserve-credentials', '--'];
  const [file, ...args] = ownerUid === null ? [...enter, ...argv] : argv;
  return { file: file as string, args, env: {} };
}

/** Runs `argv` on the host, with the IPC namespace of the sandbox and all privileges of its user namespace. */
export function enterIpcOf(sandbox: Namespaced, argv: readonly string[]): Entry {
  const [file, ...args] = [...entering(sandbox, ['-U', '-i']), ...argv];
  return { file: file as string, args, env: {} };
}

let counted: Map<string, number[]> | null = null;

/**
 * The processes of every PID namespace, counted once for all who ask in the same turn of the event loop: many
 * sandboxes that end at once would each look at all processes of the machine.
 */
function census(): Map<string, number[]> {
  if (counted) return counted;
  counted = new Map();
  for (const pid of processIds()) {
    const namespace = pidNamespace(pid);
    if (namespace) counted.set(namespace, [...(counted.get(namespace) ?? []), pid]);
  }
  setImmediate(() => {
    counted = null;
  });
  return counted;
}

/** All processes inside but the first. */
export function processesIn({ first, namespace }: Namespaced): ProcessInfo[] {
  return (census().get(namespace) ?? [])
    .filter((pid) => pid !== first.pid)
    .map((pid) => processInfo(pid))
    .filter((info) => info !== null && !info.zombie) as ProcessInfo[];
}

/** How many {@link processesIn} would find, without a look at each: many sandboxes may end at once. */
export function countIn({ first, namespace }: Namespaced): number {
  return (census().get(namespace) ?? []).filter((pid) => pid !== first.pid).length;
}

/**
 * Waits for the end of what holds up a sandbox whose first process has been killed. nsenter stops itself when the
 * program that it waits for is stopped, and what it does not reap would hold the sandbox for ever.
 * @throws RolloutError SandboxFailed
 */
export async function untilEnded(outer: ChildProcess, sandboxId: string): Promise<void> {
  const timer = setTimeout(() => {
    for (const { pid } of processesOf(sandboxId)) if (pid !== outer.pid) signal(pid, 'SIGKILL');
  }, REAP_MS);
  try {
    await untilDead(outer, `sandbox ${sandboxId}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Every process but the first is dead when this resolves; returns how many there were. */
export async function killAllIn(backend: Backend, handle: Namespaced): Promise<number> {
  const before = processesIn(handle).length;
  const deadline = performance.now() + DEATH_MS;
  for (;;) {
    // kill(-1) from inside is atomic, so that nothing forks away from it.
    const argv = ['/bin/bash', '-c', 'kill -KILL -1'];
    const { file, args, env } = backend.enter(handle, { argv, cwd: '/', environment: {} });
    await runQuietly(file, args, env);
    if (processesIn(handle).length === 0) return before;
    if (performance.now() > deadline) {
      throw new RolloutError('SandboxFailed', `processes of sandbox ${handle.sandboxId} do not die`);
    }
  }
}
