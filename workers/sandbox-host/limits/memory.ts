import { statfsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Handle } from '../backends/backend.ts';
import type { ProcessInfo } from '../processes.ts';

/** Bytes of the kernel's that an empty file in a memory file system takes, about. */
const INODE_BYTES = 1024;

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

/**
 * Bytes that are in memory because of this process: pages that it shares with others count in proportion, files
 * that the kernel could drop not at all. Takes time in proportion to the process's size.
 */
export async function ownBytes({ pid, residentBytes }: ProcessInfo): Promise<number> {
  let text: string;
  try {
    text = await readFile(`/proc/${pid}/smaps_rollup`, 'latin1');
  } catch (error) {
    // Ended (then it has no pages), or not ours to look at.
    return (error as NodeJS.ErrnoException).code === 'EACCES' ? residentBytes : 0;
  }
  const kib = (name: string): number =>
    Number(new RegExp(`^${name}: +([0-9]+) kB`, 'm').exec(text)?.[1] ?? 0);
  return (kib('Pss_Anon') + kib('Pss_Shmem')) * 1024;
}
