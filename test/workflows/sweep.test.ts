import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { WORKFLOW_QUEUE } from '../../contracts/queues.ts';
import { CANCEL_SWEEP_WORKFLOW, type SweepReport } from '../../contracts/sweep.ts';
import { registerSchedules } from '../../temporal-config/schedules.ts';
import { startTestServer, type TestServer } from '../support/temporal.ts';
import { gate, keepHistory } from './kept.ts';
import { report, startScriptedWorkers, untilCancelled, usual } from './scripted.ts';

let server: TestServer;
let workers: Awaited<ReturnType<typeof startScriptedWorkers>>;
let client: RolloutClient;
const folder = mkdtempSync(path.join(os.tmpdir(), 'sweep-'));
const store = new TrajectoryStore(folder);

before(async () => {
  server = await startTestServer();
  workers = await startScriptedWorkers(server.address, store);
  client = await RolloutClient.connect(
    loadConfig({ env: {}, flags: { temporal: { address: server.address } } }),
  );
});
after(async () => {
  await client?.close();
  await workers?.stop();
  await server?.stop();
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  Object.assign(workers.script, usual);
  workers.calls.length = 0;
});

const input = (rolloutId: string, batchId = 'batch-1') => ({
  rolloutId,
  task: { handler: 'math', id: 'task-1', data: { question: 'q', answer: '1' } },
  batchId,
});

test('hosts stop what they hold, signals tell the rest, and the records are the same', async () => {
  const running = gate();
  const aborted = gate();
  workers.script.run = async () => {
    running.open();
    await aborted.passed;
    return { ...report, ended: 'aborted', cancel: { reason: 'stale', llmAborted: true, turn: 4, ms: 7 } };
  };
  workers.script.abortMany = async ({ selection, reason }) => {
    assert.deepEqual([selection.rolloutIds, reason], [['on-host', 'queued', 'ended', 'unknown'], 'stale']);
    aborted.open();
    return { rolloutIds: ['on-host'] };
  };
  await client.start(input('on-host'));
  await running.passed;
  workers.script.run = async () => report;
  await client.execute(input('ended'));
  await client.start(input('queued'));
  await client.pause('queued');
  const hosts = ['host-a', 'host-that-is-gone'];
  const selection = { rolloutIds: ['on-host', 'queued', 'ended', 'unknown'] };
  const sweep = await client.temporal.workflow.execute<(given: unknown) => Promise<SweepReport>>(
    CANCEL_SWEEP_WORKFLOW,
    { workflowId: 'sweep', taskQueue: WORKFLOW_QUEUE, args: [{ selection, reason: 'stale', hosts }] },
  );
  assert.equal(sweep.aborted, 1);
  assert.deepEqual(sweep.silentHosts, ['host-that-is-gone']);
  const result = await client.result('on-host');
  assert.equal(result.outcome, 'cancelled');
  assert.deepEqual([result.cancel?.reason, result.cancel?.stage, result.cancel?.turn], ['stale', 'run', 4]);
  assert.ok((result.cancel?.ms ?? 0) >= 7, 'counted from the host’s word');
  await keepHistory(client, 'on-host');
  await keepHistory(client, 'sweep');
});

test('a batch is ended by its name, rollouts that are not listed yet included', async () => {
  const ids = Array.from({ length: 12 }, (_, index) => `of-batch-${index}`);
  workers.script.init = () => untilCancelled(); // no sandbox ever becomes free
  const inits = Promise.all(ids.map((id) => client.start(input(id, 'batch-2'))));
  const sweeping = client.cancelMany({ batchId: 'batch-2' }, 'batchComplete');
  await inits;
  const sweep = await sweeping;
  assert.equal(sweep.aborted, 0);
  const results = await Promise.all(ids.map((id) => client.result(id)));
  assert.deepEqual([...new Set(results.map((result) => result.cancel?.reason))], ['batchComplete']);
  assert.equal(sweep.signalled, 12);
});

test('no sweep is about everything by accident', async () => {
  await assert.rejects(client.cancelMany({}), /name rollouts, a batch, a group or a policy version/);
  await assert.rejects(client.cancelMany({ belowVersion: -1 }), /belowVersion/);
});

test('what was terminated from outside gets its one record, by the schedule', async () => {
  const begun = gate();
  workers.script.init = () => {
    begun.open();
    return untilCancelled();
  };
  await client.start(input('terminated'));
  await begun.passed;
  await client.temporal.workflow.getHandle('terminated').terminate('by hand');
  await registerSchedules(client.temporal);
  await registerSchedules(client.temporal); // again is harmless
  const schedule = client.temporal.schedule.getHandle('rollouts-closed-sweep');
  let record = await store.getTerminal('terminated');
  for (; !record; record = await store.getTerminal('terminated')) {
    await schedule.trigger('ALLOW_ALL'); // visibility may take a moment
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert.equal(record.outcome, 'failed');
  assert.deepEqual([record.failure?.type, record.reward, record.taskId], ['Terminated', null, 'task-1']);
  assert.deepEqual((await client.result('terminated')).failure?.type, 'Terminated');
});
