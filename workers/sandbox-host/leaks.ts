import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import path from 'node:path';
import { helpersOf, recordedAnchors } from './left-overs.ts';
import { cgroupsOf } from './limits/cgroup.ts';
import { hostPaths, sandboxPrefix, temporaryFolder } from './paths.ts';
import { isAlive, readNames } from './process-names.ts';
import { environmentOf, processIds, processInfo, SANDBOX_VARIABLE } from './processes.ts';

/** Something that a sandbox left behind. */
export interface Leak {
  readonly kind: 'process' | 'mount' | 'socket' | 'terminal' | 'folder' | 'cgroup';
  /** Which, for people: a process id with its command, a path, a terminal. */
  readonly what: string;
}

/** Milliseconds that a sandbox may be in the making or in the ending: seen at both ends of that, it is a leak. */
const CHANGING_MS = 3000;

/**
 * Everything on this machine that is of sandboxes of the host whose state lies in `stateDir` and that no live
 * sandbox owns. Found from outside, by name and whether the host runs or not; nothing is touched.
 */
export async function findLeaks(stateDir: string): Promise<Leak[]> {
  const first = look(stateDir);
  if (first.length === 0) return first;
  await new Promise((resolve) => setTimeout(resolve, CHANGING_MS));
  const again = new Set(look(stateDir).map(({ what }) => what));
  return first.filter(({ what }) => again.has(what));
}

function look(stateDir: string): Leak[] {
  const paths = hostPaths(stateDir);
  const host = existsSync(paths.owner)
    ? readNames(readFileSync(paths.owner, 'utf8')).find(isAlive)
    : undefined;
  const folders = existsSync(paths.sandboxes) ? readdirSync(paths.sandboxes) : [];
  const live = new Set(host ? folders.filter((name) => isLive(path.join(paths.sandboxes, name))) : []);
  const prefix = sandboxPrefix(paths.root);
  const ids = new RegExp(`${prefix}[0-9a-f]{16}`, 'g');
  /** Ids of sandboxes of this host in `text` that live no more. */
  const dead = (text: string): string[] => (text.match(ids) ?? []).filter((id) => !live.has(id));
  const left = folders.filter((name) => !live.has(name)).map((name) => path.join(paths.sandboxes, name));
  const helpers = new Set(left.flatMap((folder) => helpersOf(recordedAnchors(folder))).map(({ pid }) => pid));
  return [
    ...left.map((folder) => leak('folder', folder)),
    ...readdirSync('/tmp').flatMap((name) =>
      dead(name).length > 0 ? leak('folder', temporaryFolder(name)) : [],
    ),
    ...processIds().flatMap((pid) =>
      isOf(pid, dead) || helpers.has(pid) ? leak('process', `${pid} ${commandOf(pid)}`) : [],
    ),
    ...read('/proc/self/mountinfo')
      .split('\n')
      .flatMap((line) => (dead(line).length > 0 ? leak('mount', line.split(' ')[4] ?? line) : [])),
    ...read('/proc/net/unix')
      .split('\n')
      .flatMap((line) => (dead(line).length > 0 ? leak('socket', line.slice(line.indexOf('/'))) : [])),
    ...(existsSync(paths.socket) && !host ? [leak('socket', paths.socket)] : []),
    ...(host ? idleTerminals(host.pid) : []),
    ...(host ? cgroupsOf(host.pid).filter((folder) => dead(folder).length > 0) : []).map((folder) =>
      leak('cgroup', folder),
    ),
  ];
}

function leak(kind: Leak['kind'], what: string): Leak {
  return { kind, what };
}

/** True if one of the processes that hold the sandbox lives. */
function isLive(folder: string): boolean {
  return recordedAnchors(folder).some(isAlive);
}

/** True if the process was started for a sandbox that `dead` knows, or has its folders mounted. */
function isOf(pid: number, dead: (text: string) => string[]): boolean {
  if (processInfo(pid)?.zombie !== false) return false;
  const entry = environmentOf(pid).find((each) => each.startsWith(`${SANDBOX_VARIABLE}=`)) ?? '';
  return dead(entry).length > 0 || dead(read(`/proc/${pid}/mountinfo`)).length > 0;
}

/** Terminals that the host holds and that no process has for its own. */
function idleTerminals(host: number): Leak[] {
  const used = new Set(processIds().map((pid) => processInfo(pid)?.terminal));
  return readdirSync(`/proc/${host}/fd`).flatMap((fd) => {
    try {
      if (!/^\/dev\/(pts\/)?ptmx$/.test(readlinkSync(`/proc/${host}/fd/${fd}`))) return [];
    } catch {
      return []; // closed since
    }
    const index = /^tty-index:\s*([0-9]+)$/m.exec(read(`/proc/${host}/fdinfo/${fd}`))?.[1];
    return index === undefined || used.has(Number(index))
      ? []
      : leak('terminal', `/dev/pts/${index} (fd ${fd})`);
  });
}

function commandOf(pid: number): string {
  return read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim().slice(0, 200);
}

/** A file of /proc; empty if what it was about is gone or not ours to look at. */
function read(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}
