import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { loadTools } from '../../config/tools.ts';
import { kernelAdvice, sandbox } from '../../scripts/setup/steps/sandbox.mjs';
import { fakeProgram, recordingReport, temporaryFolder } from './support.mjs';

const linux = (PATH) => ({ env: { PATH }, platform: 'linux' });

test('a bubblewrap on PATH that starts no sandbox gives way to the one that does', async (t) => {
  const folder = temporaryFolder(t);
  fakeProgram(folder, 'bwrap', 'echo "bwrap: setting up uid map: Permission denied" >&2; exit 1');
  const report = recordingReport();
  const { bwrap } = loadTools();
  const context = linux(`${folder}:/usr/bin:/bin`);
  const { value, summary } = await sandbox.run(context, report, async () => ({ bwrap }));
  assert.equal(value, bwrap);
  assert.match(summary, /^bubblewrap \d+\.\d+\.\d+, /);
  assert.deepEqual(report.lines, []);
});

test('where no sandbox starts, it says so, with what to do, and the set-up goes on', async (t) => {
  const folder = temporaryFolder(t);
  const broken = fakeProgram(folder, 'other-bwrap', 'echo "bwrap: No permissions" >&2; exit 1');
  const report = recordingReport();
  const { value, summary } = await sandbox.run(linux('/nowhere'), report, async () => ({ bwrap: broken }));
  assert.equal(value, broken);
  assert.match(summary, /does not work here/);
  const text = report.lines.join('\n');
  assert.match(text, /nsenter, setpriv, prlimit not found on PATH: sandboxes need the package util-linux/);
  assert.match(text, new RegExp(`${broken} starts no sandbox: bwrap: No permissions`));
  assert.match(text, /--sandbox=process/);
});

test('outside Linux the person is told that there are no sandboxes', async () => {
  const report = recordingReport();
  const { value } = await sandbox.run({ env: {}, platform: 'darwin' }, report, async () => ({}));
  assert.equal(value, '');
  assert.match(report.lines[0], /Linux only: .*--sandbox=process/);
});

for (const [setting, value, remedy] of [
  ['kernel/apparmor_restrict_unprivileged_userns', '1', /apt install bubblewrap/],
  ['user/max_user_namespaces', '0', /sysctl user\.max_user_namespaces=15000/],
  ['kernel/unprivileged_userns_clone', '0', /sysctl kernel\.unprivileged_userns_clone=1/],
]) {
  test(`${path.basename(setting)} is named when it forbids sandboxes`, () => {
    const [first] = kernelAdvice((name) => (name === setting ? `${value}\n` : undefined));
    assert.match(first, new RegExp(`${setting.replace('/', '.')}=${value}`));
    assert.match(first, remedy);
  });
}
