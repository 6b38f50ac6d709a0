import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileName } from '../paths.ts';

/**
 * Removes the ledgers of rollouts that have no sandbox here and have recorded nothing for `ageMs`. Their copies in
 * the store are what counts then. Returns how many rollouts that were.
 */
export async function removeOldLedgers(
  ledgersDir: string,
  ageMs: number,
  liveRollouts: ReadonlySet<string>,
): Promise<number> {
  const live = new Set([...liveRollouts].map(fileName));
  let removed = 0;
  for (const name of await readdir(ledgersDir)) {
    if (live.has(name)) continue;
    const folder = path.join(ledgersDir, name);
    const files = [folder, ...(await readdir(folder)).map((file) => path.join(folder, file))];
    const changed = await Promise.all(files.map(async (file) => (await stat(file)).mtimeMs));
    if (Date.now() - Math.max(...changed) < ageMs) continue;
    await rm(folder, { recursive: true, force: true });
    removed++;
  }
  return removed;
}
