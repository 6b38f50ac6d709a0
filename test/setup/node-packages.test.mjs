import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { nodePackages } from '../../scripts/setup/steps/node-packages.mjs';
import { fakeProgram, recordingReport, temporaryFolder } from './support.mjs';

/** A checkout with a lock file of two packages. */
function checkout(t) {
  const root = temporaryFolder(t);
  const packages = { '': { version: '1.0.0' }, 'node_modules/node-pty': { version: '1.1.0' } };
  const other = { 'node_modules/other-platform': { version: '2.0.0', optional: true } };
  writeFileSync(
    path.join(root, 'package-lock.json'),
    JSON.stringify({ packages: { ...packages, ...other } }),
  );
  return { root, packages };
}

/** What npm leaves behind. */
function putNodeModules(root, packages) {
  mkdirSync(path.join(root, 'node_modules', 'node-pty'), { recursive: true });
  writeFileSync(path.join(root, 'node_modules', 'node-pty', 'index.js'), '');
  writeFileSync(path.join(root, 'node_modules', '.package-lock.json'), JSON.stringify({ packages }));
}

/** An `npm` that notes each call. */
function fakeNpm(root, body = '') {
  const calls = path.join(root, 'calls');
  writeFileSync(calls, '');
  const bin = path.join(root, 'bin');
  fakeProgram(bin, 'npm', `echo "$1 $2" >> ${calls}\n${body}`);
  return { env: { PATH: `${bin}:/usr/bin:/bin` }, calls: () => readFileSync(calls, 'utf8') };
}

test('npm ci runs once, and again only when the lock file has changed', async (t) => {
  const { root } = checkout(t);
  const npm = fakeNpm(root, `/bin/mkdir -p ${root}/node_modules`);
  const first = await nodePackages.run({ root, env: npm.env }, recordingReport());
  assert.equal(first.summary, 'installed from the lock file');
  const second = await nodePackages.run({ root, env: npm.env }, recordingReport());
  assert.equal(second.summary, 'as in the lock file');
  assert.equal(npm.calls(), 'ci --include=dev\n');

  writeFileSync(path.join(root, 'package-lock.json'), JSON.stringify({ packages: {} }));
  await nodePackages.run({ root, env: npm.env }, recordingReport());
  assert.equal(npm.calls(), 'ci --include=dev\nci --include=dev\n');
});

test('packages that someone installed by hand are left as they are when they match', async (t) => {
  const { root, packages } = checkout(t);
  const npm = fakeNpm(root);
  putNodeModules(root, packages);
  assert.equal(
    (await nodePackages.run({ root, env: npm.env }, recordingReport())).summary,
    'as in the lock file',
  );
  assert.equal(npm.calls(), '');
});

test('packages of other versions are replaced', async (t) => {
  const { root, packages } = checkout(t);
  const npm = fakeNpm(root);
  putNodeModules(root, { ...packages, 'node_modules/node-pty': { version: '1.0.0' } });
  await nodePackages.run({ root, env: npm.env }, recordingReport());
  assert.equal(npm.calls(), 'ci --include=dev\n');
});

test('when npm fails, its words and the missing build tools are named', async (t) => {
  const { root } = checkout(t);
  const { env } = fakeNpm(root, 'echo "gyp ERR! find Python" >&2; exit 1');
  env.PATH = path.join(root, 'bin');
  await assert.rejects(nodePackages.run({ root, env }, recordingReport()), (failure) => {
    const text = failure.explain();
    assert.match(text, /1\. npm ci in .*\n\s+npm ci .* ended with code 1\n\s+gyp ERR! find Python/);
    assert.match(text, /needs python3, make, g\+\+ \(or another C\+\+ compiler\), not found on PATH/);
    return true;
  });
});
