import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Clock ticks per second of /proc (USER_HZ), fixed at 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

/** A process as the host sees it. */
export interface ProcessInfo {
  readonly pid: number;
  readonly parent: number;
  /** Its process group: a job of its shell's. */
  readonly group: number;
  /** Process id of its session's leader. */
  readonly session: number;
  /** When it started, in ticks since boot: with `pid` it names one process for good. */
  readonly startTicks: number;
  /** Foreground process group of its terminal; -1 without one. */
  readonly foreground: number;
  readonly zombie: boolean;
  /** By a signal; it does nothing until it is told to go on. */
  readonly stopped: boolean;
  /** Its first thread runs, or waits for a processor or a disk. */
  readonly works: boolean;
  /** N of its controlling terminal /dev/pts/N; null if it has none or another. */
  readonly terminal: number | null;
  readonly threads: number;
  /** Bytes in memory, shared ones included. */
  readonly residentBytes: number;
}

export const PAGE_BYTES = pageBytes();

/** Bytes of a page of memory, from what the kernel told this process at its start (AT_PAGESZ of getauxval(3)). */
function pageBytes(): number {
  const entries = readFileSync('/proc/self/auxv');
  for (let at = 0; at + 16 <= entries.length; at += 16) {
    if (entries.readBigUInt64LE(at) === 6n) return Number(entries.readBigUInt64LE(at + 8));
  }
  return 4096;
}

/** One process, or null if there is none of that id. `proc`: another mount of the process file system. */
export function processInfo(pid: number, proc = '/proc'): ProcessInfo | null {
  let stat: string;
  try {
    stat = readFileSync(`${proc}/${pid}/stat`, 'latin1');
  } catch {
    return null; // it has ended
  }
  const fields = fieldsOf(stat);
  return {
    pid,
    zombie: fields[0] === 'Z' || fields[0] === 'X',
    stopped: fields[0] === 'T',
    works: isWork(fields[0]),
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    foreground: Number(fields[5]),
    terminal: terminalOf(Number(fields[4])),
    startTicks: Number(fields[19]),
    threads: Number(fields[17]),
    residentBytes: Number(fields[21]) * PAGE_BYTES,
  };
}

/** Of a `stat` file, from the state on. The name in parentheses may hold anything, parentheses too: the last one counts. */
const fieldsOf = (stat: string) => stat.slice(stat.lastIndexOf(')') + 2).split(' ');
const isWork = (state: string | undefined) => state === 'R' || state === 'D';

/** Whether any thread of a process runs, or waits for a processor or a disk. */
export function threadsWork(pid: number, proc = '/proc'): boolean {
  try {
    return readdirSync(`${proc}/${pid}/task`).some((thread) => {
      try {
        return isWork(fieldsOf(readFileSync(`${proc}/${pid}/task/${thread}/stat`, 'latin1'))[0]);
      } catch {
        return false; // it has ended
      }
    });
  } catch {
    return false; // it has ended
  }
}

/** First major number of pseudo terminals, of eight (devices.txt of the kernel). */
const PTS_MAJOR = 136;

function terminalOf(device: number): number | null {
  const [major, minor] = [(device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00)];
  return major >= PTS_MAJOR && major < PTS_MAJOR + 8 ? (major - PTS_MAJOR) * 256 + minor : null;
}

/** The ids of all processes that `proc`, a mount of the process file system, shows. */
export function processIds(proc = '/proc'): number[] {
  return readdirSync(proc)
    .filter((name) => /^[0-9]+$/.test(name))
    .map(Number);
}

/** Identity of a process's PID namespace; null if the process has ended or is not ours to look at. */
export function pidNamespace(pid: number): string | null {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`);
  } catch {
    return null; // ended, or of another user
  }
}

/** In how many PID namespaces, each in the one before, `/proc` shows a process; 0 if it has ended. */
export function countPidNamespaces(pid: number): number {
  try {
    return (
      /^NSpid:(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]?.match(/[0-9]+/g)?.length ?? 0
    );
  } catch {
    return 0;
  }
}

/** The environment that a process was started with, as `NAME=value`; empty if it has ended or is not ours. */
export function environmentOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
  } catch {
    return [];
  }
}

/** What the file descriptors of a process lead to, as the kernel names it; none if it has ended or is not ours. */
export function openFiles(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`);
      } catch {
        return []; // closed since
      }
    });
  } catch {
    return [];
  }
}

/** True if the process was started with this exact entry (`NAME=value`) in its environment. */
export function startedWith(pid: number, entry: string): boolean {
  return environmentOf(pid).includes(entry);
}

/**
 * Variable that names the sandbox in the environment of the processes that hold it up or wait for programs in it (never
 * of those inside, where a backend can tell them apart), for a later host to find.
 */
export const SANDBOX_VARIABLE = 'ROLLOUT_SANDBOX';

/** Processes that were started for this sandbox, as {@link SANDBOX_VARIABLE} says. */
export function processesOf(sandboxId: string): ProcessInfo[] {
  return processIds()
    .filter((pid) => startedWith(pid, `${SANDBOX_VARIABLE}=${sandboxId}`))
    .map((pid) => processInfo(pid))
    .filter((info) => info !== null && !info.zombie) as ProcessInfo[];
}

/** Sends a signal; false if the process had ended already. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** Now, on the clock of {@link ProcessInfo.startTicks}. */
export function nowTicks(): number {
  return Math.floor(Number(readFileSync('/proc/uptime', 'latin1').split(' ')[0]) * TICKS_PER_SECOND);
}

/** Milliseconds as ticks. */
export function ticks(ms: number): number {
  return (ms / 1000) * TICKS_PER_SECOND;
}
