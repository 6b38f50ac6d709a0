import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { RolloutResult } from '../../contracts/result.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { TestStack } from '../support/stack.ts';

/** Of Temporal's enum PendingActivityState. */
const STARTED = 2;

let stack: TestStack;
before(async () => {
  stack = await TestStack.create();
});
after(() => stack?.dispose());

/** Terminal records of all rollouts, as they lie in the store. */
function terminalRecords(): RolloutResult[] {
  const store = path.join(stack.folder, 'store');
  if (!existsSync(store)) return [];
  return readdirSync(store, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('terminal.json'))
    .map((name) => RolloutResult.parse(JSON.parse(readFileSync(path.join(store, name), 'utf8'))));
}

test('a stack that is killed in the middle of a batch finishes that batch when it is started again', async () => {
  stack.up('--exit', '--samples', '1');
  await stack.says(/\[2\] /);
  const pids = stack.pids();
  await stack.killAll();
  const before = terminalRecords();
  assert.ok(before.length >= 2 && before.length < 12, `${before.length} of 12 had ended`);
  while (pids.some(isRunning)) await new Promise((resolve) => setTimeout(resolve, 20));

  stack.up('--exit', '--samples', '1');
  assert.equal(await stack.ended(), 0, stack.output);
  assert.match(stack.output, /going on with batch/);

  const records = terminalRecords();
  assert.equal(records.length, 12, 'none is lost');
  assert.equal(new Set(records.map((record) => record.rolloutId)).size, 12, 'none is there twice');
  for (const old of before) {
    const now = records.find((record) => record.rolloutId === old.rolloutId);
    assert.deepEqual(now, old, 'what had ended stands unchanged');
  }
  assert.deepEqual([...new Set(records.map((record) => record.failure))], [null], 'no failure');

  const out = path.join(stack.folder, 'out', `${records[0]?.batchId}.jsonl`);
  const lines = readFileSync(out, 'utf8').trimEnd().split('\n');
  const ids = lines.map((line) => Trajectory.parse(JSON.parse(line)).rollout_id);
  assert.deepEqual(ids.sort(), records.map((record) => record.rolloutId).sort());
});

test('a stack that was stopped and is started again has a host that sweeps find', async () => {
  // The host of the stack before has taken its leave, which no workflow worker was there to see.
  stack.up('--no-sample');
  await stack.says(/The stack is up/);
  const client = await RolloutClient.connect(
    loadConfig({ env: { ROLLOUTS_TEMPORAL_ADDRESS: stack.endpoints().temporalAddress } }),
  );
  const host = client.temporal.workflow.getHandle(`host:${hostname()}`);
  for (let present = false; !present; ) {
    const { status, raw } = await host.describe();
    assert.equal(status.name, 'RUNNING');
    present = raw.pendingActivities?.some(({ state }) => state === STARTED) ?? false;
  }
  assert.deepEqual(await client.hosts(), [hostname()]);
  await client.close();
});

/** False for a process that is gone or only waits to be collected by its parent. */
function isRunning(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
