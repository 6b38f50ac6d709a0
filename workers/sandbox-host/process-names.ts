import { readFileSync } from 'node:fs';
import { type ProcessInfo, processInfo } from './processes.ts';

/** A process named for good: an id alone may be given to another. */
export type ProcessName = Pick<ProcessInfo, 'pid' | 'startTicks'>;

/** What a file has of one. After a reboot another process may have the same id and have started at the same tick. */
type Noted = ProcessName & { readonly boot?: string };

/** The text of a file that names processes of this machine, until it is booted again. */
export function namesAsText(processes: readonly ProcessName[]): string {
  const boot = bootId();
  return JSON.stringify(processes.map((process): Noted => ({ ...process, boot })));
}

/** The processes that a file's text names; none that an earlier boot of the machine had. */
export function readNames(text: string): ProcessName[] {
  try {
    const own = bootId();
    return (JSON.parse(text) as Noted[]).filter(({ boot = own }) => boot === own);
  } catch {
    return []; // torn by a crash
  }
}

/** True if this very process still runs. */
export function isAlive(name: ProcessName): boolean {
  const info = processInfo(name.pid);
  return info !== null && !info.zombie && info.startTicks === name.startTicks;
}

function bootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
}
