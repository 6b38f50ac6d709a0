import { rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { findPython } from '../steps/python.mjs';
import { run } from './command.mjs';
import { hashOf, readIfThere, writeAtomically } from './files.mjs';
import { withLock } from './lock.mjs';

/** An installation of some hundred megabytes over a slow line. */
const INSTALL_MS = 1_800_000;

/**
 * A virtual environment in the cache folder with the pinned packages of a file that lists all of them, made once for
 * each version of Python and of that file.
 * @param {{ name: string, requirements: string, env: NodeJS.ProcessEnv, say: () => void }} options `say` is called
 *   before packages are brought
 * @returns {Promise<string>} its folder
 */
export async function pinnedEnvironment({ name, requirements, env, say }) {
  const python = await findPython(env);
  const key = hashOf(readIfThere(requirements) ?? '', python.version, python.prefix).slice(0, 16);
  const caches =
    env.ROLLOUTS_CACHE ??
    path.join(env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'durable-rollouts');
  const folder = path.join(path.resolve(caches), name, key);
  // Written last: an environment without it was interrupted.
  const stamp = path.join(folder, '.set-up-done');
  return withLock(`${folder}.lock`, async () => {
    if (readIfThere(stamp) !== undefined) return folder;
    await rm(folder, { recursive: true, force: true });
    say();
    await run(python.file, ['-m', 'venv', folder]);
    const pip = ['-m', 'pip', 'install', '-q', '--no-deps', '-r', requirements];
    await run(path.join(folder, 'bin', 'python'), pip, { timeoutMs: INSTALL_MS });
    await writeAtomically(stamp, '');
    return folder;
  });
}
