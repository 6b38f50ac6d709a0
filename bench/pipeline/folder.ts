import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';

/** Works in a folder with a short path (sockets lie in it) on the disk of the checkout's state, which is gone afterwards. */
export async function withFolder<T>(prefix: string, work: (folder: string) => Promise<T>): Promise<T> {
  const parent = path.join(PROJECT_ROOT, '.rollouts');
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(path.join(parent, prefix));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
