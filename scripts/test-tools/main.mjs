#!/usr/bin/env node
// Brings Apptainer for the tests and writes where it is to .rollouts/test-tools.json.
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { explain } from '../setup/lib/failure.mjs';
import { findOnPath, isExecutable, readJsonIfThere, writeAtomically } from '../setup/lib/files.mjs';
import { apptainer } from './apptainer.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const file = path.join(root, '.rollouts', 'test-tools.json');

async function main() {
  const { env } = process;
  const since = performance.now();
  const found = [...findOnPath('apptainer', env.PATH), ...findOnPath('singularity', env.PATH)][0];
  const mayChangeMachine = env.CI === 'true' && process.getuid?.() === 0;
  const known = readJsonIfThere(file)?.apptainer;
  if (!found && !mayChangeMachine) {
    if (known && isExecutable(known)) return console.log(`apptainer for tests: ${known}`);
    await rm(file, { force: true });
    console.log(
      'apptainer is not on PATH: its tests are skipped. Install it from your distribution or your cluster’s ' +
        'modules; with CI=true and as root this script sets it up on Debian 12',
    );
    return;
  }
  const program = found ?? (await apptainer(env));
  await writeAtomically(file, `${JSON.stringify({ apptainer: program }, undefined, 2)}\n`);
  console.log(`apptainer for tests: ${program} (${((performance.now() - since) / 1000).toFixed(1)} s)`);
}

try {
  await main();
} catch (error) {
  console.error(`apptainer for tests could not be set up: ${explain(error)}`);
  process.exitCode = 1;
}
