import { execFileSync } from 'node:child_process';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../../contracts/failures.ts';
import type { LimitHit, SandboxLimits } from '../../../contracts/sandbox.ts';

/** Controllers that a folder must offer; processor time is shared fairly too where there is one for it. */
const NEEDED = ['memory', 'pids'];
const WANTED = [...NEEDED, 'cpu'];
/** Child that takes the processes which are in the folder: one with children that have limits may hold none. */
const LEAF = 'host';
/** The host's share of processors where they are all taken, as many as ten sandboxes': all of them wait for it. */
const HOST_WEIGHT = '1000';
/** What a path ends in where an earlier host has divided the folder: who starts the next one is among its processes. */
const AN_EARLIER_HOSTS = new RegExp(`(?<=/)${LEAF}$`);
/** How often what is in the folder is moved out of it before that is given up. */
const ROUNDS = 20;
/** Milliseconds that killed processes may take to be gone. */
const DEATH_MS = 1000;

/** A cgroup v2 folder below which this process may make others, or why there is none. */
export type CgroupRoot = { readonly folder: string } | { readonly folder: null; readonly why: string };

/** Whether systemd says of a unit that its cgroups are its own to divide (Delegate= of systemd.resource-control(5)). */
export type IsDelegated = (unit: string, ofUser: boolean) => boolean;

/**
 * Finds the cgroup of this process from the texts of /proc/self/cgroup and /proc/self/mountinfo (cgroups(7)), and
 * whether it has been handed to us: a delegated unit of systemd, or the root of a container's. Reads only.
 */
export function findCgroup(membership: string, mountinfo: string, isDelegated: IsDelegated): CgroupRoot {
  const no = (why: string): CgroupRoot => ({ folder: null, why });
  const located = locate(membership, mountinfo);
  if (located === undefined) return no('there is no cgroup v2 here');
  const { own, below, folder } = located;
  const unit = own.split('/').findLast((name) => /\.(service|scope)$/.test(name));
  try {
    const offered = words(path.join(folder, 'cgroup.controllers'));
    const missing = NEEDED.filter((name) => !offered.includes(name));
    if (missing.length > 0) return no(`${folder} has no controller for ${missing.join(' and ')}`);
    if (below === '' && !existsSync(path.join(folder, 'cgroup.events')))
      return no(`${folder} is the machine's`);
    for (const name of ['', 'cgroup.procs', 'cgroup.subtree_control']) {
      accessSync(path.join(folder, name), constants.W_OK);
    }
    if (below !== '' && (unit === undefined || !isDelegated(unit, own.includes('/user@')))) {
      return no(
        `${folder} has not been delegated: start the host by systemd-run --user --scope -p Delegate=yes`,
      );
    }
    return { folder };
  } catch (error) {
    return no(`${folder} is not this user's to divide: ${messageOf(error)}`);
  }
}

/** The cgroup that a host divides or has divided: its name, its path from where they are mounted, and its folder. */
function locate(membership: string, mountinfo: string) {
  const own = /^0::(\/.*)$/m.exec(membership)?.[1]?.replace(AN_EARLIER_HOSTS, '');
  const mount = mountinfo.split('\n').find((line) => line.includes(' - cgroup2 '));
  const [, , , root = '/', place = ''] = mount?.split(' ') ?? [];
  if (own === undefined || place === '') return undefined;
  const below = path.relative(root, own);
  return { own, below, folder: path.join(place, below) };
}

/** Folders of the cgroups that the host with this process id has made. */
export function cgroupsOf(pid: number): string[] {
  const located = locate(
    readFileSync(`/proc/${pid}/cgroup`, 'utf8'),
    readFileSync('/proc/self/mountinfo', 'utf8'),
  );
  if (located === undefined || !existsSync(path.join(located.folder, LEAF))) return [];
  return readdirSync(located.folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => path.join(located.folder, name));
}

/** {@link findCgroup} for this very process. */
export function ownCgroup(): CgroupRoot {
  const read = (name: string): string => readFileSync(`/proc/self/${name}`, 'utf8');
  const isDelegated: IsDelegated = (unit, ofUser) => {
    const args = [...(ofUser ? ['--user'] : []), 'show', '--property=Delegate', '--value', unit];
    return execFileSync('systemctl', args, { encoding: 'utf8', timeout: 5000 }).trim() === 'yes';
  };
  return findCgroup(read('cgroup'), read('mountinfo'), isDelegated);
}

/** Makes `folder` one to make cgroups of sandboxes in; those of an earlier host, whose names begin so, go. */
export async function divideCgroup(folder: string, prefix: string): Promise<void> {
  for (const name of readdirSync(folder)) {
    if (name.startsWith(prefix)) await new SandboxCgroup(folder, name).remove();
  }
  const leaf = path.join(folder, LEAF);
  mkdirSync(leaf, { recursive: true });
  const offered = words(path.join(folder, 'cgroup.controllers'));
  const enabled = WANTED.filter((name) => offered.includes(name)).map((name) => `+${name}`);
  for (let round = 1; ; round++) {
    for (const pid of words(path.join(folder, 'cgroup.procs'))) move(pid, leaf);
    try {
      writeFileSync(path.join(folder, 'cgroup.subtree_control'), enabled.join(' '));
      break;
    } catch (error) {
      // A process that was started meanwhile.
      if ((error as NodeJS.ErrnoException).code !== 'EBUSY' || round === ROUNDS) throw error;
    }
  }
  if (offered.includes('cpu')) writeFileSync(path.join(leaf, 'cpu.weight'), HOST_WEIGHT);
}

function move(pid: string, folder: string): void {
  try {
    writeFileSync(path.join(folder, 'cgroup.procs'), pid);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error; // it has ended
  }
}

/** The cgroup of one sandbox. */
export class SandboxCgroup {
  readonly folder: string;

  constructor(parent: string, sandboxId: string) {
    this.folder = path.join(parent, sandboxId);
  }

  /** `extra`: processes that hold it up, which count too. */
  create({ memoryBytes, processes }: SandboxLimits, extra: number): void {
    mkdirSync(this.folder);
    this.set('memory.max', String(memoryBytes));
    if (existsSync(path.join(this.folder, 'memory.swap.max'))) this.set('memory.swap.max', '0');
    this.set('pids.max', String(processes + extra));
  }

  add(pid: number): void {
    this.set('cgroup.procs', String(pid));
  }

  /** How often the kernel has refused something here, by limit. */
  refusals(): Partial<Record<LimitHit, number>> {
    return { memory: this.count('memory.events', 'oom_kill'), processes: this.count('pids.events', 'max') };
  }

  /** True if there are at least so many bytes that the kernel could not take back. */
  holds(bytes: number): boolean {
    const current = Number(readFileSync(path.join(this.folder, 'memory.current'), 'latin1'));
    if (current < bytes) return false;
    const droppable = ['inactive_file', 'active_file', 'slab_reclaimable'];
    return droppable.reduce((held, name) => held - this.count('memory.stat', name), current) >= bytes;
  }

  /** How often more memory was wanted than there may be. */
  wanted(): number {
    return this.count('memory.events', 'max');
  }

  /** Kills what is in it, and removes it when that is gone; if it does not go, the next host removes it. */
  async remove(): Promise<void> {
    const deadline = performance.now() + DEATH_MS;
    for (;;) {
      try {
        this.set('cgroup.kill', '1');
        return rmdirSync(this.folder);
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (code === 'ENOENT') return;
        if (code !== 'EBUSY') throw error;
        if (performance.now() > deadline) return;
      }
      await delay(5);
    }
  }

  private set(name: string, value: string): void {
    writeFileSync(path.join(this.folder, name), value);
  }

  private count(file: string, name: string): number {
    const text = readFileSync(path.join(this.folder, file), 'latin1');
    return Number(new RegExp(`^${name} ([0-9]+)$`, 'm').exec(text)?.[1] ?? 0);
  }
}

function words(file: string): string[] {
  return readFileSync(file, 'latin1').split(/\s+/).filter(Boolean);
}
