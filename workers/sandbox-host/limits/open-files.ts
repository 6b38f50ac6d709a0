import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import type { ProcessInfo } from '../processes.ts';

/** O_WRONLY and O_RDWR of open(2), in the octal flags of /proc/<pid>/fdinfo. */
const MAY_WRITE = 0b11;

/**
 * Bytes on disk of the files that these processes have open to write to below `folder`, as they see it: each file once,
 * with a name or without. Nothing is opened.
 */
export async function bytesBeingWritten(processes: readonly ProcessInfo[], folder: string): Promise<number> {
  const sizes = new Map<string, number>();
  for (const { pid } of processes) {
    for (const fd of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      try {
        const link = `/proc/${pid}/fd/${fd}`;
        if (!(await readlink(link)).startsWith(`${folder}/`)) continue;
        const flags = /^flags:\s*([0-7]+)$/m.exec(await readFile(`/proc/${pid}/fdinfo/${fd}`, 'latin1'))?.[1];
        if ((Number.parseInt(flags ?? '0', 8) & MAY_WRITE) === 0) continue;
        const file = await stat(link);
        if (file.isFile()) sizes.set(`${file.dev}:${file.ino}`, file.blocks * 512);
      } catch {
        // closed since
      }
    }
  }
  return [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
}
