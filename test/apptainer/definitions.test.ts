import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { buildImage } from '../../workers/sandbox-host/images/build.ts';
import { failure, temporaryFolder, until } from '../sandbox/support.ts';
import { WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { testAsNobody } from '../support/nobody.ts';
import { buildOptions, makeRoot, processesWith } from './support.ts';

const NAME = 'what the commands of a definition write is bounded, and nothing that they start stays';

/** Somebody who builds. */
const PERSON = `
  import { buildImage } from './workers/sandbox-host/images/build.ts';
  import { buildOptions } from './test/apptainer/support.ts';
  await buildImage(process.env.DEFINITION, buildOptions(process.env.CACHE));`;

test(NAME, { skip: WITHOUT_APPTAINER }, async (t) => {
  if (process.geteuid?.() === 0) {
    // Root of a container may lack what Apptainer wants of root for them.
    const said = await testAsNobody(t, NAME, ['test/apptainer/definitions.test.ts']);
    assert.match(said, new RegExp(`^ok 1 - ${NAME}$`, 'm'));
    return;
  }
  const folder = temporaryFolder(t);
  const cacheDir = path.join(folder, 'images');
  const bounded = { ...buildOptions(cacheDir), maxBytes: 64 * 1024 ** 2 };
  // With what the script of fakeroot(1) wants, where Apptainer finds that.
  makeRoot(path.join(folder, 'more'), ['setsid', 'getopt', 'cut', 'sed', 'tr', 'expr']);
  const definition = path.join(folder, 'writes.def');
  const nap = `sleep ${300 + Math.random()}`;
  const closed = 'mkdir /closed; echo x >/closed/x; chmod 0 /closed';
  // In a session of its own, as Apptainer has it with `faked`.
  const hidden = `env -i setsid ${nap} </dev/null >/dev/null 2>&1 &`;
  const define = (last: string) => {
    const post = [closed, hidden, last].join('\n');
    writeFileSync(definition, `Bootstrap: localimage\nFrom: more\n%post\n${post}\n`);
    return definition;
  };
  const sleepers = () => spawnSync('pgrep', ['-fx', nap], { encoding: 'utf8' }).stdout;
  const left = () => readdirSync(cacheDir).filter((name) => name.endsWith('.building'));

  const writing =
    'for name in 1 2 3 4 5 6 7 8 9; do dd if=/dev/zero of=/$name bs=1M count=60; done; sleep 60';
  const tooLarge = failure('ImageTooLarge', /more than 67108864 bytes .*sandbox\.imageBytes/);
  await assert.rejects(buildImage(define(writing), bounded), tooLarge);
  assert.deepEqual([left(), processesWith(cacheDir), sleepers()], [[], [], '']);

  const begun = () => until(() => sleepers() !== '', 'the commands of the definition');
  const ended = () =>
    until(() => sleepers() === '' && processesWith(cacheDir).length === 0, 'the end of the build');
  const asked = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', PERSON], {
    env: { ...process.env, DEFINITION: define('sleep 61'), CACHE: cacheDir },
    stdio: 'ignore',
  });
  await begun();
  asked.kill('SIGKILL');
  await ended();
  assert.deepEqual(left(), []);

  const building = assert.rejects(buildImage(define('sleep 60'), bounded), failure('ImageBuildFailed'));
  await begun();
  const script = processesWith(cacheDir).filter((pid) =>
    readFileSync(`/proc/${pid}/cmdline`, 'latin1').startsWith('/bin/bash\0-c\0'),
  );
  assert.equal(script.length, 1);
  process.kill(script[0] as number, 'SIGKILL');
  await ended();
  await building;
  assert.equal(left().length, 1);
  // The next build clears it.
  assert.equal((await buildImage(define('true'), bounded)).built, true);
  assert.deepEqual([left(), processesWith(cacheDir), sleepers()], [[], [], '']);
});
