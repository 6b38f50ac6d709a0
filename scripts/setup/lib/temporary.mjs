import { rmSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import path from 'node:path';

const leftovers = new Set();
process.on('exit', () => {
  for (const file of leftovers) rmSync(file, { recursive: true, force: true });
});

/** Has a file or folder removed when this process exits, even in the middle of its work. */
export function removeAtExit(file) {
  leftovers.add(file);
}

/** Removes it now. */
export async function remove(file) {
  await rm(file, { recursive: true, force: true });
  leftovers.delete(file);
}

/**
 * Runs `work` with a new folder beside `target`, so on the same file system, and removes it afterwards.
 * @template T
 * @param {string} target
 * @param {(folder: string) => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function withFolderBeside(target, work) {
  await mkdir(path.dirname(target), { recursive: true });
  const folder = await mkdtemp(`${target}.`);
  removeAtExit(folder);
  try {
    return await work(folder);
  } finally {
    await remove(folder);
  }
}
