#!/usr/bin/env node
// `npm run test:agents`: brings mini-swe-agent from PyPI into the cache folder, once, and runs the tests with it.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { pinnedEnvironment } from '../setup/lib/environment.mjs';
import { explain } from '../setup/lib/failure.mjs';
import { writeAtomically } from '../setup/lib/files.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');

try {
  const environment = await pinnedEnvironment({
    name: 'mini-swe-agent',
    requirements: path.join(root, 'scripts', 'mini-swe-agent', 'requirements.txt'),
    env: process.env,
    say: () => console.log('mini-swe-agent: 750 MB of packages'),
  });
  // test/mini-swe-agent reads it.
  const file = path.join(root, '.rollouts', 'mini-swe-agent.json');
  await writeAtomically(file, `${JSON.stringify({ environment }, undefined, 2)}\n`);
  const args = ['--import', 'tsx', '--test', '--test-reporter=spec', 'test/mini-swe-agent/real-agent.ts'];
  const child = spawn(process.execPath, args, { cwd: root, stdio: 'inherit' });
  process.exitCode = await new Promise((resolve) => child.once('exit', (code) => resolve(code ?? 1)));
} catch (error) {
  console.error(`mini-swe-agent could not be set up: ${explain(error)}`);
  process.exitCode = 1;
}
