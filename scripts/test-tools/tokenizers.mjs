import { copyFile, mkdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../setup/lib/command.mjs';
import { hashOf, readIfThere, writeAtomically } from '../setup/lib/files.mjs';
import { withLock } from '../setup/lib/lock.mjs';

const LOCKED = fileURLToPath(new URL('./tokenizers/', import.meta.url));

/**
 * Brings the tokenizers of the lock file beside this one into the cache folder, and returns the folder that holds
 * the packages. Too large for everybody's node_modules: 600 MB.
 * @param {NodeJS.ProcessEnv} env
 */
export async function tokenizers(env) {
  const lock = readIfThere(path.join(LOCKED, 'package-lock.json')) ?? '';
  const cache =
    env.ROLLOUTS_CACHE ??
    path.join(env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'durable-rollouts');
  const folder = path.join(path.resolve(cache), 'tokenizers', hashOf(lock).slice(0, 16));
  const stamp = path.join(folder, '.set-up-done');
  await withLock(`${folder}.lock`, async () => {
    if (readIfThere(stamp) !== undefined) return;
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    for (const name of ['package.json', 'package-lock.json'])
      await copyFile(path.join(LOCKED, name), path.join(folder, name));
    const [file, ...first] = env.npm_execpath ? [process.execPath, env.npm_execpath] : ['npm'];
    const quiet = ['--ignore-scripts', '--no-audit', '--no-fund'];
    await run(file, [...first, 'ci', ...quiet], { cwd: folder, env, timeoutMs: 600_000 });
    await writeAtomically(stamp, '');
  });
  return path.join(folder, 'node_modules');
}
