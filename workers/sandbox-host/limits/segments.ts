import type { Backend, Handle } from '../backends/backend.ts';
import { outputOf } from '../backends/wait.ts';

/**
 * Bytes of System V shared memory in a sandbox's own IPC namespace. It outlives the process that made it, and
 * counts nowhere else while nobody has it attached.
 */
export async function segmentBytes(backend: Backend, handle: Handle): Promise<number> {
  const entry = backend.enterIpc?.(handle, ['/usr/bin/cat', '/proc/sysvipc/shm']);
  return entry ? bytesOf(await outputOf(entry)) : 0;
}

/** Removes them all; those that are attached go with the last process that has them. */
export async function removeSegments(backend: Backend, handle: Handle): Promise<void> {
  const entry = backend.enterIpc?.(handle, ['/usr/bin/ipcrm', '--all=shm']);
  if (entry) await outputOf(entry);
}

/** What the segments of a /proc/sysvipc/shm take, in memory and swapped out. */
export function bytesOf(text: string): number {
  const [heading = [], ...lines] = text.split('\n').map((line) => line.trim().split(/ +/));
  const columns = [heading.indexOf('rss'), heading.indexOf('swap')];
  return lines.flatMap((line) => columns.map((at) => Number(line[at] ?? 0))).reduce((sum, n) => sum + n, 0);
}
