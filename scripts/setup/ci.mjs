#!/usr/bin/env node
import { run } from './lib/command.mjs';
// Installs the system packages that a bare CI machine lacks. Never on a person's machine: only with CI=true
// and as root.
import { explain } from './lib/failure.mjs';
import { findOnPath } from './lib/files.mjs';

/** Package by the program that tells whether it is there. The optional one only serves one test. */
const PACKAGES = [
  { program: 'python3', packages: ['python3', 'python3-venv'] },
  { program: 'make', packages: ['make'] },
  { program: 'g++', packages: ['g++'] },
  { program: 'nsenter', packages: ['util-linux'] },
  { program: 'ps', packages: ['procps'] },
  { program: 'chromium', packages: ['chromium'], optional: true },
];

async function aptGet(...args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  // Another installation may be under way.
  await run('apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=600', ...args], {
    env,
    onLine: (line) => console.log(`  ${line}`),
  });
}

async function main() {
  if (process.env.CI !== 'true' || process.getuid?.() !== 0) {
    console.error('scripts/setup/ci.mjs changes the machine: it runs only with CI=true and as root');
    return 1;
  }
  const missing = PACKAGES.filter(({ program }) => findOnPath(program, process.env.PATH).length === 0);
  if (missing.length === 0) {
    console.log('system packages: all there');
    return 0;
  }
  await aptGet('update');
  for (const { program, packages, optional } of missing) {
    console.log(`system packages: ${program} is missing, installing ${packages.join(' ')}`);
    try {
      await aptGet('install', '-y', '--no-install-recommends', ...packages);
    } catch (error) {
      if (!optional) throw error;
      console.error(`going on without ${program}: ${explain(error)}`);
    }
  }
  return 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`system packages could not be installed: ${explain(error)}`);
  process.exitCode = 1;
}
