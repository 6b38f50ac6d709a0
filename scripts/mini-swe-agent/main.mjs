#!/usr/bin/env node
// `npm run test:agents`: brings mini-swe-agent from PyPI into the cache folder, once, and runs the tests with it.
import { spawn } from 'node:child_process';
import { rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../setup/lib/command.mjs';
import { explain } from '../setup/lib/failure.mjs';
import { hashOf, readIfThere, readJsonIfThere, writeAtomically } from '../setup/lib/files.mjs';
import { withLock } from '../setup/lib/lock.mjs';
import { findPython } from '../setup/steps/python.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const requirements = path.join(root, 'scripts', 'mini-swe-agent', 'requirements.txt');

/** A virtual environment with the pinned packages, 750 MB. */
async function setUp() {
  const { env } = process;
  const python = await findPython(env);
  const key = hashOf(readIfThere(requirements) ?? '', python.version, python.prefix).slice(0, 16);
  const caches =
    env.ROLLOUTS_CACHE ??
    path.join(env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'durable-rollouts');
  const environment = path.join(path.resolve(caches), 'mini-swe-agent', key);
  // Written last: an environment without it was interrupted.
  const stamp = path.join(environment, 'set-up-done.json');
  return withLock(`${environment}.lock`, async () => {
    if (!readJsonIfThere(stamp)) {
      await rm(environment, { recursive: true, force: true });
      console.log('mini-swe-agent: 750 MB of packages');
      await run(python.file, ['-m', 'venv', environment]);
      const pip = ['-m', 'pip', 'install', '-q', '--no-deps', '-r', requirements];
      await run(path.join(environment, 'bin', 'python'), pip, { timeoutMs: 1_800_000 });
      await writeAtomically(stamp, JSON.stringify({ environment }));
    }
    return { environment };
  });
}

try {
  const value = await setUp();
  // test/mini-swe-agent reads it.
  const file = path.join(root, '.rollouts', 'mini-swe-agent.json');
  await writeAtomically(file, `${JSON.stringify(value, undefined, 2)}\n`);
  const args = ['--import', 'tsx', '--test', '--test-reporter=spec', 'test/mini-swe-agent/real-agent.ts'];
  const child = spawn(process.execPath, args, { cwd: root, stdio: 'inherit' });
  process.exitCode = await new Promise((resolve) => child.once('exit', (code) => resolve(code ?? 1)));
} catch (error) {
  console.error(`mini-swe-agent could not be set up: ${explain(error)}`);
  process.exitCode = 1;
}
