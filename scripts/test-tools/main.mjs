#!/usr/bin/env node
// Brings what only tests need and writes where it is to .rollouts/test-tools.json.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { explain } from '../setup/lib/failure.mjs';
import { findOnPath, isExecutable, readJsonIfThere, writeAtomically } from '../setup/lib/files.mjs';
import { apptainer } from './apptainer.mjs';
import { tokenizers } from './tokenizers.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const file = path.join(root, '.rollouts', 'test-tools.json');

/** The apptainer program, or undefined where there is none and this machine is not to be changed. */
async function findApptainer(env) {
  const found = [...findOnPath('apptainer', env.PATH), ...findOnPath('singularity', env.PATH)][0];
  if (found) return found;
  if (env.CI === 'true' && process.getuid?.() === 0) return apptainer(env);
  const known = readJsonIfThere(file)?.apptainer;
  return known && isExecutable(known) ? known : undefined;
}

async function main() {
  const { env } = process;
  const since = performance.now();
  const program = await findApptainer(env);
  if (!program) {
    console.log(
      'apptainer is not on PATH: its tests are skipped. Install it from your distribution or your cluster’s ' +
        'modules; with CI=true and as root this script sets it up on Debian 12',
    );
  }
  const tools = { ...(program ? { apptainer: program } : {}), tokenizers: await tokenizers(env) };
  await writeAtomically(file, `${JSON.stringify(tools, undefined, 2)}\n`);
  const seconds = ((performance.now() - since) / 1000).toFixed(1);
  console.log(`for tests: ${Object.values(tools).join(', ')} (${seconds} s)`);
}

try {
  await main();
} catch (error) {
  console.error(`what tests need could not be set up: ${explain(error)}`);
  process.exitCode = 1;
}
