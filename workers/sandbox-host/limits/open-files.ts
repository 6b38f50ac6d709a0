import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ProcessInfo } from '../processes.ts';

/** O_WRONLY and O_RDWR of open(2), in the octal flags of /proc/<pid>/fdinfo. */
const MAY_WRITE = 0b11;

/**
 * Bytes on disk of the files that these processes have open to write to below `folder`, as they see it: each file once,
 * with a name or without. Nothing is opened. Not by way of other threads, for which writers leave little of the
 * processors; but the event loop goes on after each process.
 */
export async function bytesBeingWritten(processes: readonly ProcessInfo[], folder: string): Promise<number> {
  const sizes = new Map<string, number>();
  for (const { pid } of processes) {
    for (const [file, bytes] of filesOf(pid, folder)) sizes.set(file, bytes);
    await nextTurn();
  }
  return [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** Its files by device and inode, and the bytes of each. */
function filesOf(pid: number, folder: string): [file: string, bytes: number][] {
  return descriptorsOf(pid).flatMap((fd) => {
    try {
      const link = `/proc/${pid}/fd/${fd}`;
      if (!readlinkSync(link).startsWith(`${folder}/`)) return [];
      const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'latin1'))?.[1];
      if ((Number.parseInt(flags ?? '0', 8) & MAY_WRITE) === 0) return [];
      const file = statSync(link);
      return file.isFile() ? [[`${file.dev}:${file.ino}`, file.blocks * 512]] : [];
    } catch {
      return []; // closed since
    }
  });
}

function descriptorsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`);
  } catch {
    return []; // it has ended
  }
}
