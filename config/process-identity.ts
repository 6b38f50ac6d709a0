import { readFileSync } from 'node:fs';

/**
 * When a process began: boot id and the kernel's ticks since boot. With the pid this names a process beyond
 * doubt; a pid alone is given again to others. Undefined if there is no such process, or no /proc.
 */
export function startTimeOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // Field 22; the second field is a name in brackets that may hold spaces.
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()}:${ticks}`;
  } catch {
    return undefined; // no such process: that is the answer
  }
}
