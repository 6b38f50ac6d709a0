import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { run } from '../../scripts/setup/lib/command.mjs';
import { fakeProgram, temporaryFolder } from './support.mjs';

const SCRIPT = path.join(PROJECT_ROOT, 'scripts', 'setup', 'ci.mjs');
const notRoot = process.getuid() === 0 ? false : 'system packages are for root';

/** A machine that lacks everything but what is named, with an apt-get that fails for one package. */
function machine(t, present, failing) {
  const folder = temporaryFolder(t);
  const bin = path.join(folder, 'bin');
  const calls = path.join(folder, 'calls');
  for (const name of present) fakeProgram(bin, name, '');
  fakeProgram(
    bin,
    'apt-get',
    `echo "$@" >> ${calls}\ncase "$*" in *${failing}*) echo "no ${failing}" >&2; exit 100;; esac`,
  );
  return { env: { PATH: bin, CI: 'true' }, calls };
}

test('system packages are installed on CI only', async (t) => {
  const { env, calls } = machine(t, [], 'nothing');
  await assert.rejects(
    run(process.execPath, [SCRIPT], { env: { ...env, CI: '' } }),
    /only with CI=true and as root/,
  );
  assert.equal(existsSync(calls), false);
});

test('CI gets what is missing, and does without the browser when it must', { skip: notRoot }, async (t) => {
  const { env, calls } = machine(t, ['python3', 'make', 'g++', 'nsenter'], 'chromium');
  const { output } = await run(process.execPath, [SCRIPT], { env });
  assert.equal(
    readFileSync(calls, 'utf8'),
    ['update', 'install -y --no-install-recommends procps', 'install -y --no-install-recommends chromium']
      .map((line) => `-q -o DPkg::Lock::Timeout=600 ${line}\n`)
      .join(''),
  );
  assert.match(output, /going on without chromium: .*\nno chromium/);
});

test('CI fails when a package that it needs is not to be had', { skip: notRoot }, async (t) => {
  const { env } = machine(t, ['python3', 'make', 'nsenter', 'ps', 'chromium'], 'g++');
  await assert.rejects(run(process.execPath, [SCRIPT], { env }), /could not be installed: [\s\S]*no g\+\+/);
});
