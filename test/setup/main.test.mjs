import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { run } from '../../scripts/setup/lib/command.mjs';
import { readIfThere } from '../../scripts/setup/lib/files.mjs';
import { runSteps } from '../../scripts/setup/lib/steps.mjs';
import { TEMPORAL_CLI } from '../../scripts/setup/versions.mjs';
import { fakeProgram, recordingReport, temporaryFolder } from './support.mjs';

const MAIN = path.join(PROJECT_ROOT, 'scripts', 'setup', 'main.mjs');

test('a second run of the set-up finds everything and changes nothing', async () => {
  const file = path.join(PROJECT_ROOT, '.rollouts', 'tools.json');
  const before = statSync(file).mtimeMs;
  const { output } = await run(process.execPath, [MAIN]);
  assert.equal(statSync(file).mtimeMs, before);
  assert.match(output, /ok {2}npm packages +as in the lock file/);
  assert.match(output, /ok {2}Python packages +there, Python 3\./);
  assert.match(output, /ok {2}Temporal CLI +\d+\.\d+\.\d+, (on PATH|in the cache folder|TEMPORAL_CLI)/);
  assert.match(output, /set-up ready in \d/);
  assert.doesNotMatch(output, /npm ci|pip install|downloading|go install/);
});

test('what it wrote names programs and a model that are there', () => {
  const { temporal, python, model } = loadTools();
  for (const file of [temporal, python, model]) assert.ok(statSync(file).isFile(), file);
  assert.equal(readFileSync(model).subarray(0, 4).toString('latin1'), 'GGUF');
});

test('a step that fails stops no other, and who needs it does not repeat its report', async () => {
  const titles = [];
  const reporter = {
    step(title) {
      return {
        ...recordingReport(),
        done: (text) => titles.push(`${title}: ${text}`),
        failed: (text) => titles.push(`${title} failed: ${text}`),
      };
    },
  };
  const steps = {
    broken: {
      title: 'Broken',
      run: async () => {
        throw Object.assign(new Error('disk full'), { code: 'ENOSPC' });
      },
    },
    user: { title: 'User', run: async (_context, _report, needs) => ({ value: await needs('broken') }) },
    good: { title: 'Good', run: async ({ answer }) => ({ value: answer, summary: 'ready' }) },
  };
  const { values, failures } = await runSteps(steps, { answer: 42 }, reporter);
  assert.deepEqual(values, { good: 42 });
  assert.deepEqual(failures, [{ title: 'Broken', text: 'disk full' }]);
  assert.deepEqual(titles.sort(), [
    'Broken failed: disk full',
    'Good: ready',
    'User failed: needs Broken, which failed',
  ]);
});

test('a set-up that is stopped ends what it started and leaves no lock or half a program', async (t) => {
  const folder = temporaryFolder(t);
  const started = path.join(folder, 'started');
  const bin = path.join(folder, 'bin');
  fakeProgram(bin, 'go', `echo $$ > ${started}.new; /bin/mv ${started}.new ${started}; exec /bin/sleep 600`);
  const env = {
    ...process.env,
    PATH: bin,
    TEMPORAL_CLI: '',
    ROLLOUTS_CACHE: path.join(folder, 'cache'),
    ROLLOUTS_TEMPORAL_DOWNLOAD: 'http://127.0.0.1:1',
  };
  const setUp = spawn(process.execPath, [MAIN], { env, stdio: 'ignore' });
  while (!existsSync(started)) await sleep(20);
  setUp.kill('SIGTERM');
  assert.deepEqual(await once(setUp, 'exit'), [143, null]);
  const go = Number(readFileSync(started, 'utf8'));
  while (isRunning(go)) await sleep(20);
  assert.deepEqual(readdirSync(path.join(folder, 'cache', 'temporal-cli', TEMPORAL_CLI)), []);
});

/** Whether a process runs: one that has ended but was not yet waited for does not. */
function isRunning(pid) {
  const status = readIfThere(`/proc/${pid}/stat`);
  return status !== undefined && !/\) Z/.test(status);
}
