import { readdir, stat } from 'node:fs/promises';
import type { ProcessInfo } from '../processes.ts';

/** Bytes of files that have no name any more and live because a process of the sandbox holds them open. */
export interface UnlinkedBytes {
  /** On the file system of the workspace. */
  readonly disk: number;
  /** In memory: memfd_create(2) and the like. */
  readonly memory: number;
  /** Bytes by process. */
  readonly holders: ReadonlyMap<number, number>;
  /** All of them, as device:inode. */
  readonly seen: ReadonlySet<string>;
}

/**
 * Counts them once each. `diskDevice`: of the workspace's file system; `memoryDevices`: of file systems whose
 * bytes are counted otherwise. Nothing is opened.
 */
export async function unlinkedBytes(
  processes: readonly ProcessInfo[],
  diskDevice: number,
  memoryDevices: ReadonlySet<number>,
): Promise<UnlinkedBytes> {
  const seen = new Set<string>();
  const holders = new Map<number, number>();
  let [disk, memory] = [0, 0];
  for (const { pid } of processes) {
    const folder = `/proc/${pid}/fd`;
    for (const fd of await readdir(folder).catch(() => [])) {
      const file = await stat(`${folder}/${fd}`).catch(() => null); // closed since
      if (!file?.isFile() || file.nlink > 0 || memoryDevices.has(file.dev)) continue;
      const bytes = file.blocks * 512;
      holders.set(pid, (holders.get(pid) ?? 0) + bytes);
      const name = `${file.dev}:${file.ino}`;
      if (seen.has(name)) continue;
      seen.add(name);
      if (file.dev === diskDevice) disk += bytes;
      else memory += bytes;
    }
  }
  return { disk, memory, holders, seen };
}
