import type { Backend, Handle } from '../backends/backend.ts';
import { outputOf } from '../backends/wait.ts';

/** What the kernel takes for one message, and for one semaphore, beside what is in it: about, and at least. */
const MESSAGE_BYTES = 64;
const SEMAPHORE_BYTES = 64;
/** What it takes for a queue, and for a set of semaphores. */
const OBJECT_BYTES = 256;

/**
 * Bytes of System V in a sandbox's own IPC namespace: shared memory, message queues, semaphores. They outlive the
 * process that made them, and count nowhere else (shared memory: while nobody has it attached).
 */
export async function ipcBytes(backend: Backend, handle: Handle): Promise<number> {
  const files = ['shm', 'msg', 'sem'].map((name) => `/proc/sysvipc/${name}`);
  const entry = backend.enterIpc?.(handle, ['/usr/bin/cat', ...files]);
  return entry ? bytesOf(await outputOf(entry)) : 0;
}

/** Removes all of it; shared memory that is attached goes with the last process that has it. */
export async function removeIpc(backend: Backend, handle: Handle): Promise<void> {
  const entry = backend.enterIpc?.(handle, ['/usr/bin/ipcrm', '--all']);
  if (entry) await outputOf(entry);
}

/** What the tables of /proc/sysvipc (proc_sysvipc(5)) say is taken, in memory and swapped out. */
export function bytesOf(text: string): number {
  let heading: string[] = [];
  let bytes = 0;
  for (const line of text.split('\n')) {
    const fields = line.trim().split(/ +/);
    if (fields[0] === 'key') heading = fields;
    else if (fields.length >= heading.length) {
      const of = (name: string): number => Number(fields[heading.indexOf(name)] ?? 0);
      if (heading.includes('shmid')) bytes += of('rss') + of('swap');
      else if (heading.includes('msqid')) bytes += OBJECT_BYTES + of('cbytes') + of('qnum') * MESSAGE_BYTES;
      else if (heading.includes('semid')) bytes += OBJECT_BYTES + of('nsems') * SEMAPHORE_BYTES;
    }
  }
  return bytes;
}
