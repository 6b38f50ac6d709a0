#!/usr/bin/env node
// Brings everything that the service needs, into this checkout and one cache folder, and writes where it is
// to .rollouts/tools.json. Plain JavaScript without packages, since this is what brings the packages.
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { endAll } from './lib/command.mjs';
import { readIfThere, writeAtomically } from './lib/files.mjs';
import { createReporter } from './lib/reporter.mjs';
import { runSteps } from './lib/steps.mjs';
import { nodePackages } from './steps/node-packages.mjs';
import { pythonEnvironment } from './steps/python.mjs';
import { sandbox } from './steps/sandbox.mjs';
import { temporalCli } from './steps/temporal-cli.mjs';
import { compareVersions, NODE_MINIMUM } from './versions.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');

function refuseUnsupported() {
  if (compareVersions(process.versions.node, NODE_MINIMUM) < 0) {
    return `Node ${process.versions.node} is too old: install ${NODE_MINIMUM} or newer`;
  }
  if (process.platform !== 'linux' && process.platform !== 'darwin') {
    return `${process.platform} is not supported: use Linux, macOS, or Linux inside WSL 2`;
  }
  return undefined;
}

function cacheFolder(env) {
  if (env.ROLLOUTS_CACHE) return path.resolve(env.ROLLOUTS_CACHE);
  return path.join(env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'durable-rollouts');
}

async function main() {
  const refusal = refuseUnsupported();
  if (refusal) {
    console.error(`set-up: ${refusal}`);
    return 1;
  }
  const since = performance.now();
  const { env, platform, arch } = process;
  const context = { root, cache: cacheFolder(env), env, platform, arch };
  const reporter = createReporter();
  // The longest step comes first.
  const steps = { temporal: temporalCli, npm: nodePackages, python: pythonEnvironment, sandbox };
  const { values, failures } = await runSteps(steps, context, reporter);
  reporter.close();

  for (const { title, text } of failures) reporter.text(`\n${title}: ${text}`);
  if (failures.length > 0) {
    reporter.text(`\nset-up failed: ${failures.map(({ title }) => title).join(', ')}`);
    return 1;
  }
  const tools = {
    temporal: values.temporal,
    python: values.python.python,
    bwrap: values.sandbox,
    model: values.python.model,
  };
  const file = path.join(root, '.rollouts', 'tools.json');
  const text = `${JSON.stringify(tools, undefined, 2)}\n`;
  if (readIfThere(file) !== text) await writeAtomically(file, text);
  reporter.text(`set-up ready in ${((performance.now() - since) / 1000).toFixed(1)} s`);
  return 0;
}

for (const [signal, code] of Object.entries({ SIGINT: 130, SIGTERM: 143, SIGHUP: 129 })) {
  process.once(signal, () => {
    endAll();
    process.exit(code);
  });
}
process.exitCode = await main();
