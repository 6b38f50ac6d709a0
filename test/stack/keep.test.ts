import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { startTimeOf } from '../../config/process-identity.ts';
import { Keeper, type Running } from '../../workers/stack/keep.ts';
import { lockStack } from '../../workers/stack/lock.ts';

/** A real process as a part. */
function sleeper(pids: number[], seconds = '60'): () => Promise<Running> {
  return async () => {
    const child = spawn('sleep', [seconds], { stdio: 'ignore' });
    await once(child, 'spawn');
    pids.push(child.pid as number);
    const ended = once(child, 'exit').then(([code, signal]) => `sleep ended with ${signal ?? code}`);
    return {
      ended,
      stop: async () => {
        child.kill('SIGKILL');
        await ended;
      },
    };
  };
}

test('a part that is killed is started again; one that is stopped is not', async () => {
  const pids: number[] = [];
  const said: string[] = [];
  const keeper = await Keeper.start(sleeper(pids), (line) => said.push(line));
  process.kill(pids[0] as number, 'SIGKILL');
  while (pids.length < 2) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.deepEqual(said, ['sleep ended with SIGKILL; it is started again']);
  await keeper.stop();
  await keeper.ended;
  assert.equal(pids.length, 2);
  assert.deepEqual(
    pids.filter((pid) => startTimeOf(pid) !== undefined),
    [],
  );
});

test('a part that does not start at once is tried again: what it needs may be on its way', async () => {
  let starts = 0;
  const pids: number[] = [];
  const launch = sleeper(pids);
  const said: string[] = [];
  const keeper = await Keeper.start(
    async () => {
      if (++starts === 2) throw new Error('no server yet');
      return launch();
    },
    (line) => said.push(line),
  );
  process.kill(pids[0] as number, 'SIGKILL');
  while (pids.length < 2) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(said[1], 'no server yet; it is started again');
  await keeper.stop();
});

test('a part that cannot be started again is given up with the reason', async () => {
  let starts = 0;
  const pids: number[] = [];
  const launch = sleeper(pids, '0');
  const keeper = await Keeper.start(
    async () => {
      if (starts++ > 0) throw new Error('no more');
      return launch();
    },
    () => {},
    5,
  );
  assert.equal(await keeper.ended, 'no more, 6 times in a row');
});

test('one process at a time runs the stack of a folder; a dead one’s lock is taken over', (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'lock-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const unlock = lockStack(folder);
  assert.throws(() => lockStack(folder), new RegExp(`already runs \\(process ${process.pid}\\)`));
  unlock();
  for (const left of [JSON.stringify({ pid: process.pid, start: 'earlier' }), '', '{"pid"']) {
    writeFileSync(path.join(folder, 'stack.lock'), left);
    lockStack(folder)();
  }
});
