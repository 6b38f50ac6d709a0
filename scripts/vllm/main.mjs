#!/usr/bin/env node
// `npm run test:vllm`: brings a real vLLM server for the CPU and a model, once, and runs the tests against it.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { explain } from '../setup/lib/failure.mjs';
import { readJsonIfThere, writeAtomically } from '../setup/lib/files.mjs';
import { setUpVllm } from './set-up.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');

async function main() {
  const since = performance.now();
  const { model } = readJsonIfThere(path.join(root, '.rollouts', 'tools.json'));
  const value = await setUpVllm({ root, model, env: process.env, say: (line) => console.log(line) });
  // test/support/vllm.ts reads it.
  await writeAtomically(
    path.join(root, '.rollouts', 'vllm.json'),
    `${JSON.stringify(value, undefined, 2)}\n`,
  );
  console.log(`vLLM is there: ${value.vllm} (${((performance.now() - since) / 1000).toFixed(0)} s)`);
  if (process.argv.includes('--only-set-up')) return 0;
  const args = ['--import', 'tsx', '--test', '--test-reporter=spec', 'test/vllm/real-server.ts'];
  const child = spawn(process.execPath, args, { cwd: root, stdio: 'inherit' });
  return new Promise((resolve) => child.once('exit', (code) => resolve(code ?? 1)));
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`vLLM could not be set up: ${explain(error)}`);
  process.exitCode = 1;
}
