import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { rowsOf } from '../../client/rows.ts';
import { loadConfig } from '../../config/load.ts';
import type { Caller } from '../../gateway/auth.ts';
import { taskFile } from '../../gateway/task-file.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'task-file-'));
after(() => rmSync(folder, { recursive: true }));
const inside = (name: string) => path.join(folder, name);
mkdirSync(inside('tasks/more'), { recursive: true });
for (const name of ['tasks/a.jsonl', 'tasks/more/..b.jsonl', 'secret', 'tasks-too']) {
  writeFileSync(inside(name), 'key-of-somebody-else\n');
}
symlinkSync(inside('secret'), inside('tasks/link'));
symlinkSync(inside('tasks/a.jsonl'), inside('tasks/own-link'));

const trainer: Caller = { name: 'trainer', scopes: ['read', 'write'] };
const operator: Caller = { name: 'operator', scopes: ['admin'] };
const asked = (file: string, caller: Caller | undefined, gateway = {}) =>
  taskFile(file, loadConfig({ env: {}, flags: { gateway } }).gateway, caller);

test('files are for those who may do everything, or lie below the folder of tasks', async () => {
  const secret = inside('secret');
  await assert.rejects(asked(secret, trainer), /scope admin, or below gateway\.taskFolder/);
  assert.equal(await asked(secret, operator), secret);
  assert.equal(await asked(secret, undefined), secret);
  const taskFolder = inside('tasks');
  for (const name of ['tasks/a.jsonl', 'tasks/more/..b.jsonl', 'tasks/more/../a.jsonl']) {
    assert.equal(await asked(inside(name), trainer, { taskFolder }), path.resolve(inside(name)));
  }
  assert.equal(await asked(inside('tasks/own-link'), trainer, { taskFolder }), inside('tasks/a.jsonl'));
  for (const name of ['secret', 'nobody', 'tasks', 'tasks-too', 'tasks/../secret']) {
    await assert.rejects(asked(inside(name), trainer, { taskFolder }), /is not below .*tasks \(gateway/);
  }
  await assert.rejects(asked(inside('tasks/link'), trainer, { taskFolder }), /leads out of/);
});

test('what has no end is no file, and what is no task is not quoted', async () => {
  await assert.rejects(asked('/dev/zero', undefined), /is no file/);
  await assert.rejects(asked(inside('tasks'), undefined), /is no file/);
  const rows = [];
  for await (const row of rowsOf(inside('secret'))) rows.push(row);
  assert.deepEqual(rows, [{ line: 1, problem: 'is not JSON' }]);
});
