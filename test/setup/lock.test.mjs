import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import { run } from '../../scripts/setup/lib/command.mjs';
import { withLock } from '../../scripts/setup/lib/lock.mjs';
import { temporaryFolder } from './support.mjs';

const LOCK_MODULE = new URL('../../scripts/setup/lib/lock.mjs', import.meta.url).href;

/** A process id that was in use and is no more. */
function deadProcess() {
  return spawnSync('true').pid;
}

test('processes that take the same lock never work at the same time', async (t) => {
  const folder = temporaryFolder(t);
  const counter = path.join(folder, 'counter');
  const lock = path.join(folder, 'lock');
  writeFileSync(counter, '0');
  // The first of them finds the lock of a process that died; all of them try to take it over.
  writeFileSync(lock, JSON.stringify({ pid: deadProcess(), host: os.hostname() }));
  const script = `
    import { readFileSync, writeFileSync } from 'node:fs';
    import { setTimeout as sleep } from 'node:timers/promises';
    const { withLock } = await import(${JSON.stringify(LOCK_MODULE)});
    await withLock(${JSON.stringify(lock)}, async () => {
      const value = Number(readFileSync(${JSON.stringify(counter)}, 'utf8'));
      await sleep(20);
      writeFileSync(${JSON.stringify(counter)}, String(value + 1));
    });`;
  const one = () => run(process.execPath, ['--input-type=module', '-e', script], { timeoutMs: 60_000 });
  await Promise.all(Array.from({ length: 6 }, one));
  assert.equal(readFileSync(counter, 'utf8'), '6');
  assert.equal(existsSync(lock), false);
});

test('who waits is told for whom, and goes on when the owner has failed', async (t) => {
  const lock = path.join(temporaryFolder(t), 'lock');
  let fail;
  let first;
  await new Promise((inside) => {
    first = withLock(lock, () => {
      inside();
      return new Promise((_resolve, reject) => {
        fail = reject;
      });
    });
  });
  const waits = new Promise((resolve) => {
    const second = withLock(lock, async () => 'done', { onWait: (owner) => resolve({ owner, second }) });
  });
  const { owner, second } = await waits;
  assert.equal(owner, `process ${process.pid} on ${os.hostname()}`);
  fail(new Error('no disk'));
  await assert.rejects(first, /no disk/);
  assert.equal(await second, 'done');
});
