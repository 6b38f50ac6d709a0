import { readFileSync, statfsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Handle } from '../backends/backend.ts';
import { PAGE_BYTES, type ProcessInfo } from '../processes.ts';

/** Bytes of the kernel's that an empty file in a memory file system takes, about. */
export const INODE_BYTES = 1024;

/** Bytes that lie in the sandbox's memory file systems. Cheap: what is in them does not matter. */
export function bytesInFolders({ memoryFolders = [] }: Handle): number {
  let bytes = 0;
  for (const folder of memoryFolders) {
    try {
      const { blocks, bfree, bsize, files, ffree } = statfsSync(folder);
      bytes += (blocks - bfree) * bsize + (files - ffree) * INODE_BYTES;
    } catch {
      // The sandbox has just ended.
    }
  }
  return bytes;
}

/** True if one of the memory file systems is full. */
export function folderIsFull({ memoryFolders = [] }: Handle): boolean {
  return memoryFolders.some((folder) => {
    try {
      const { blocks, bfree, files, ffree } = statfsSync(folder);
      return bfree < blocks / 256 || (files > 0 && ffree === 0);
    } catch {
      return false; // the sandbox has just ended
    }
  });
}

/** Bytes of one process that no file backs and no other program can have mapped: pages of its parent's count. */
export function unsharedBytes(pid: number, proc: string): number {
  try {
    const [, resident = 0, shared = 0] = readFileSync(`${proc}/${pid}/statm`, 'latin1')
      .split(' ')
      .map(Number);
    return (resident - shared) * PAGE_BYTES;
  } catch {
    return 0; // it has ended
  }
}

/**
 * Bytes that are in memory because of this process and that are counted nowhere else: pages that it shares with
 * others count in proportion, the tables that say where its pages are in full, files that the kernel could drop not at
 * all, nor files in memory that have a name or are in `counted` (device:inode). Takes time in proportion to the
 * process's size.
 */
export async function ownBytes(
  { pid, residentBytes }: ProcessInfo,
  counted: ReadonlySet<string>,
): Promise<number> {
  try {
    const [rollup, status] = await Promise.all([
      readFile(`/proc/${pid}/smaps_rollup`, 'latin1'),
      readFile(`/proc/${pid}/status`, 'latin1'),
    ]);
    const bytes = (kib(rollup, 'Pss_Anon') + kib(status, 'VmPTE')) * 1024;
    return kib(rollup, 'Pss_Shmem') === 0 ? bytes : bytes + (await namelessBytes(pid, counted));
  } catch (error) {
    // Ended (then it has no pages), or not ours to look at.
    return (error as NodeJS.ErrnoException).code === 'EACCES' ? residentBytes : 0;
  }
}

/** Header of a mapping in smaps(5): device (major, minor), inode and what the kernel calls it. */
const MAPPING = /^[0-9a-f]+-[0-9a-f]+ \S+ [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) ([0-9]+) *(.*)$/;

/** Bytes of shared memory without a name: mmap(2)'s anonymous one, and of memfd_create(2) what is not in `counted`. */
async function namelessBytes(pid: number, counted: ReadonlySet<string>): Promise<number> {
  let bytes = 0;
  for (const text of (await readFile(`/proc/${pid}/smaps`, 'latin1')).split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/)) {
    const [, major = '', minor = '', inode = '', name = ''] =
      MAPPING.exec(text.split('\n', 1)[0] ?? '') ?? [];
    if (name !== '/dev/zero (deleted)' && !name.startsWith('/memfd:')) continue;
    const device = Number.parseInt(major, 16) * 256 + Number.parseInt(minor, 16);
    if (!counted.has(`${device}:${inode}`)) bytes += kib(text, 'Pss') * 1024;
  }
  return bytes;
}

function kib(text: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+([0-9]+) kB`, 'm').exec(text)?.[1] ?? 0);
}
