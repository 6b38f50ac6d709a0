import assert from 'node:assert/strict';
import { mkdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { pythonBinds } from '../../activities/tools/python-binds.ts';
import { loadTools } from '../../config/tools.ts';
import { failure, temporaryFolder } from '../sandbox/support.ts';

/** A virtual environment whose interpreter lies in `prefix`; returns its Python. */
function environmentOf(t: TestContext, prefix: string, target = path.join(prefix, 'bin/python3')): string {
  const folder = realpathSync(temporaryFolder(t));
  mkdirSync(path.join(folder, 'bin'));
  writeFileSync(path.join(folder, 'pyvenv.cfg'), `home = ${prefix}/bin\nversion = 3.11.7\n`);
  symlinkSync(target, path.join(folder, 'bin/python'));
  return path.join(folder, 'bin/python');
}

const sources = (python: string) => pythonBinds(python).map(({ source }) => source);

test('an environment of the system needs itself only', (t) => {
  const python = environmentOf(t, '/usr');
  const folder = path.dirname(path.dirname(python));
  assert.deepEqual(pythonBinds(python), [{ source: folder, target: folder }]);
});

test('one of another prefix needs that too, under each name that leads to it', (t) => {
  const versions = realpathSync(temporaryFolder(t));
  mkdirSync(path.join(versions, '3.11.7/bin'), { recursive: true });
  writeFileSync(path.join(versions, '3.11.7/bin/python3'), '');
  symlinkSync('3.11.7', path.join(versions, '3.11'));
  const python = environmentOf(t, path.join(versions, '3.11'));
  const folder = path.dirname(path.dirname(python));
  assert.deepEqual(sources(python), [folder, path.join(versions, '3.11'), path.join(versions, '3.11.7')]);
});

test('a home folder is never shown', (t) => {
  for (const prefix of [os.homedir(), path.dirname(os.homedir())]) {
    const python = environmentOf(t, prefix, '/usr/bin/python3');
    assert.throws(() => pythonBinds(python), failure('HandlerFailed', /holds a home folder/));
  }
  assert.throws(() => pythonBinds('/usr/bin/python3'), failure('HandlerFailed', /virtual environment/));
});

test("the set-up's Python can be shown", () => {
  const { python } = loadTools();
  assert.ok(sources(python).includes(path.dirname(path.dirname(python))));
});
