import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Backend, Handle } from '../backends/backend.ts';

/** Milliseconds for one count. A tree that takes longer is over any limit. */
const COUNT_MS = 60_000;

/** What a folder takes on disk. */
export interface TreeSize {
  readonly bytes: number;
  readonly files: number;
}

/**
 * Counts a tree that hostile code may be changing: du goes by file descriptors, follows no link, stays on the
 * file system, counts blocks (holes are free) and a file of many names once. Runs beside the sandbox,
 * not in it. Infinite: the tree could not be counted in time.
 */
export async function treeSize(backend: Backend, handle: Handle, folder: string): Promise<TreeSize> {
  const script = 'du -sxB1 -- "$1"; du -sx --inodes -- "$1"';
  const argv = ['/bin/sh', '-c', script, 'du', folder];
  const [file, ...rest] = argv as [string, ...string[]];
  const entry = backend.examine?.(handle, argv) ?? { file, args: rest, env: {} };
  const child = spawn(entry.file, entry.args, {
    env: { ...entry.env, PATH: '/usr/bin:/bin' },
    cwd: '/',
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true, // killed as a group
  });
  let text = '';
  child.stdout.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk;
  });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
  }, COUNT_MS);
  try {
    await once(child, 'close');
  } finally {
    clearTimeout(timer);
  }
  if (late) return { bytes: Number.POSITIVE_INFINITY, files: Number.POSITIVE_INFINITY };
  const [bytes = 0, files = 0] = text.split('\n').map((line) => Number.parseInt(line, 10) || 0);
  return { bytes, files };
}
