#!/usr/bin/env node
// Runs type check, lint and tests. `npm test` runs all; `npm test -- setup client` runs the tests of those
// folders of test/ only, without the checks; `npm run test:long` runs the files named *.long.test.ts instead, which
// take minutes each. What begins with a hyphen goes to Node's test runner.
import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const testFolder = path.join(root, 'test');
/** Folders of test/ that hold data, not tests. */
const DATA = new Set(['fixtures', 'histories']);

const CHECKS = [
  { name: 'type check', command: ['node_modules/.bin/tsc', '--noEmit'] },
  { name: 'lint', command: ['node_modules/.bin/biome', 'ci', '--colors=off', '.'] },
];

/** Test files below a folder, the long ones or the others, sorted: Node 20's runner knows no patterns. */
function findTests(folder, long) {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const file = path.join(folder, entry.name);
      if (entry.isDirectory()) return DATA.has(entry.name) ? [] : findTests(file, long);
      if (!/\.test\.(ts|mjs)$/.test(entry.name)) return [];
      return /\.long\.test\./.test(entry.name) === long ? [path.relative(root, file)] : [];
    })
    .sort();
}

function areas() {
  return readdirSync(testFolder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !DATA.has(entry.name))
    .map((entry) => entry.name);
}

/** Runs a command; its output is shown as it comes, or only when it fails. Resolves to whether it passed. */
function passes([file, ...args], { quiet }) {
  return new Promise((resolve) => {
    const stdio = quiet ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'inherit', 'inherit'];
    const child = spawn(file, args, { cwd: root, stdio });
    let output = '';
    for (const stream of quiet ? [child.stdout, child.stderr] : []) {
      stream.setEncoding('utf8').on('data', (text) => {
        output += text;
      });
    }
    child.on('error', (error) => {
      console.log(`${file} could not be started: ${error.message}`);
      resolve(false);
    });
    child.on('close', (code) => {
      if (code !== 0 && quiet) console.log(output);
      resolve(code === 0);
    });
  });
}

async function main([first, ...rest]) {
  const long = first === '--long';
  const args = long || first === undefined ? rest : [first, ...rest];
  const flags = args.filter((arg) => arg.startsWith('-'));
  const wanted = args.filter((arg) => !arg.startsWith('-'));
  const unknown = wanted.filter((name) => !areas().includes(name));
  if (unknown.length > 0) {
    console.error(`no folder test/${unknown.join(', test/')}; there are: ${areas().join(', ')}`);
    return 2;
  }

  const failed = [];
  for (const { name, command } of wanted.length > 0 || long ? [] : CHECKS) {
    const passed = await passes(command, { quiet: true });
    console.log(`${passed ? '✔' : '✖'} ${name} (${command.map((part) => path.basename(part)).join(' ')})`);
    if (!passed) failed.push(name);
  }

  const folders = wanted.length > 0 ? wanted.map((name) => path.join(testFolder, name)) : [testFolder];
  const files = folders.flatMap((folder) => findTests(folder, long));
  if (files.length === 0) {
    console.error('no test files found');
    return 2;
  }
  // The runner leaves one processor free by default; these tests wait for a quarter of their time.
  const concurrency = `--test-concurrency=${os.availableParallelism() + 1}`;
  // A file that hangs fails instead of holding up all the others for ever.
  const timeout = `--test-timeout=${15 * 60_000}`;
  const runner = ['--import', 'tsx', '--test', '--test-reporter=spec', concurrency, timeout];
  const node = [process.execPath, ...runner, ...flags];
  const passed = await passes([...node, ...files], { quiet: false });
  // Not on standard output, whose last lines are the runner's summary.
  if (failed.length > 0) console.error(`not passed before the tests: ${failed.join(', ')} (see the top)`);
  return passed && failed.length === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
