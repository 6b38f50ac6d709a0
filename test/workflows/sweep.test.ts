import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { cancelCommand, pauseCommand } from '../../client/commands/steer.ts';
import { loadConfig } from '../../config/load.ts';
import { CANCEL_MANY_UPDATE, ROLLOUT_WORKFLOW } from '../../contracts/signals.ts';
import { CANCEL_SWEEPER, type SweepReport } from '../../contracts/sweep.ts';
import { registerSchedules } from '../../temporal-config/schedules.ts';
import { until } from '../support/until.ts';
import { gate, keepHistory } from './kept.ts';
import { placement, report, untilCancelled } from './scripted.ts';
import { scriptedService } from './scripted-service.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'sweep-'));
const store = new TrajectoryStore(folder);
after(() => rmSync(folder, { recursive: true }));
const service = scriptedService(store, { 'limit.historyCount.suggestContinueAsNew': '60' });

const input = (rolloutId: string, batchId = 'batch-1') => ({
  rolloutId,
  task: { handler: 'math', id: 'task-1', data: { question: 'q', answer: '1' } },
  batchId,
});

test('hosts stop what they hold, signals tell the rest, and the records are the same', async () => {
  const running = gate();
  const aborted = gate();
  service.workers.script.run = async () => {
    running.open();
    await aborted.passed;
    return { ...report, ended: 'aborted', cancel: { reason: 'stale', llmAborted: true, turn: 4, ms: 7 } };
  };
  service.workers.script.abortMany = async ({ selection, reason }) => {
    assert.deepEqual([selection.rolloutIds, reason], [['on-host', 'queued', 'ended', 'unknown'], 'stale']);
    aborted.open();
    return { rolloutIds: ['on-host'], unheld: [] };
  };
  await service.client.start(input('on-host'));
  await running.passed;
  service.workers.script.run = async () => report;
  await service.client.execute(input('ended'));
  await service.client.start(input('queued'));
  await service.client.pause('queued');
  const hosts = ['host-a', 'host-that-is-gone'];
  const selection = { rolloutIds: ['on-host', 'queued', 'ended', 'unknown'] };
  await service.client.cancelMany({ rolloutIds: ['nobody'] }); // starts the sweeper, which knows no host
  const sweep = await service.client.temporal.workflow
    .getHandle(CANCEL_SWEEPER)
    .executeUpdate<SweepReport, [unknown]>(CANCEL_MANY_UPDATE, {
      args: [{ selection, reason: 'stale', hosts }],
    });
  assert.equal(sweep.aborted, 1);
  assert.deepEqual(sweep.silentHosts, ['host-that-is-gone']);
  const result = await service.client.result('on-host');
  assert.equal(result.outcome, 'cancelled');
  assert.deepEqual([result.cancel?.reason, result.cancel?.stage, result.cancel?.turn], ['stale', 'run', 4]);
  assert.ok((result.cancel?.ms ?? 0) >= 7, 'counted from the host’s word');
  await keepHistory(service.client, 'on-host');
  await keepHistory(service.client, CANCEL_SWEEPER);
});

test('a command that names rollouts that there are not says so, and ends the others', async () => {
  service.workers.script.init = untilCancelled;
  for (const id of ['one', 'another']) await service.client.start(input(id));
  const config = loadConfig({ env: {}, flags: { temporal: { address: service.address } } });
  let said: unknown;
  const output = {
    ...{ json: true, note: () => {} },
    result: (value: unknown) => {
      said = value;
    },
  };
  const chosen = { rolloutIds: ['one', 'nobody', 'another', 'no-one'] };
  assert.equal(await cancelCommand(config, chosen, 'user', output), 1);
  assert.deepEqual((said as { unknown: string[] }).unknown.sort(), ['no-one', 'nobody']);
  for (const id of ['one', 'another']) {
    assert.equal((await service.client.result(id)).outcome, 'cancelled');
  }
  assert.equal(await cancelCommand(config, { rolloutIds: ['one', 'another'] }, 'user', output), 0);
});

test('one command pauses and resumes all that match, and says where each stands', async () => {
  const { client, address } = service;
  service.workers.script.init = untilCancelled;
  const config = loadConfig({ env: {}, flags: { temporal: { address } } });
  let said: Record<string, string> = {};
  const output = {
    ...{ json: true, note: () => {} },
    result: (value: unknown) => {
      said = (value as { rollouts: typeof said }).rollouts;
    },
  };
  const task = { handler: 'math', id: 'task-p', data: { question: 'q', answer: '1' } };
  await client.start({ ...input('of-both', 'batch-p'), task });
  await client.start(input('of-batch', 'batch-p'));
  await until(async () => {
    let listed = 0;
    for await (const _ of client.list({ batchId: 'batch-p' })) listed++;
    return listed === 2;
  }, 'both are listed');
  const noOthers = { rolloutIds: [] };
  await assert.rejects(pauseCommand(config, 'pause', noOthers, output), /name rollouts/);
  // It waits for ten seconds, and says so where that was not enough; told again, one that is paused stays so.
  const paused = (chosen: { batch: string; task?: string }) =>
    until(async () => {
      assert.equal(await pauseCommand(config, 'pause', { ...noOthers, ...chosen }, output), 0);
      return Object.values(said).every((what) => what === 'paused');
    }, 'all that match are paused');
  await paused({ batch: 'batch-p', task: 'task-p' });
  assert.deepEqual(Object.keys(said), ['of-both']);
  assert.equal((await client.status('of-batch')).pauseRequested, false);
  await paused({ batch: 'batch-p' });
  assert.deepEqual(Object.keys(said).sort(), ['of-batch', 'of-both']);
  service.workers.script.init = async () => placement;
  await pauseCommand(config, 'resume', { ...noOthers, batch: 'batch-p' }, output);
  for (const id of ['of-both', 'of-batch']) assert.equal((await client.result(id)).outcome, 'completed');
});

test('one whose sandbox a host has killed while nobody held it is told by signal, whatever selected it', async () => {
  service.workers.script.init = async () => placement;
  const ran = gate();
  service.workers.script.run = async () => {
    ran.open();
    return untilCancelled();
  };
  service.workers.script.abortMany = async () => ({ rolloutIds: [], unheld: ['paused-on-host'] });
  await service.client.start(input('paused-on-host'));
  await ran.passed;
  const sweep = await service.client.temporal.workflow
    .getHandle(CANCEL_SWEEPER)
    .executeUpdate<SweepReport, [unknown]>(CANCEL_MANY_UPDATE, {
      args: [{ selection: { belowVersion: 5 }, reason: 'stale', hosts: ['host-a'] }],
    });
  assert.deepEqual([sweep.aborted, sweep.signalled], [0, 1]);
  assert.equal((await service.client.result('paused-on-host')).cancel?.reason, 'stale');
});

test('a policy version also selects those whose workspaces the store keeps, and no others', async () => {
  service.workers.script.run = async ({ request }) => {
    if (request.rolloutId === 'working') return untilCancelled();
    while (!(await service.client.status(request.rolloutId)).pauseRequested);
    return { ...report, ended: 'paused' };
  };
  service.workers.script.shelve = async ({ request }) => ({
    ...{ file: '/store/workspace.tar', sha256: 'ab', bytes: 7 },
    oldestVersion: request.rolloutId === 'shelved-old' ? 3 : 5,
  });
  service.workers.script.abortMany = async () => ({ rolloutIds: [], unheld: [] });
  for (const id of ['shelved-old', 'shelved-new', 'working']) {
    await service.client.start({ ...input(id, 'batch-5'), pausedSandboxSeconds: 1 });
  }
  for (const id of ['shelved-old', 'shelved-new']) {
    // A pause before that gives init up: there would be no workspace to keep.
    await until(async () => (await service.client.status(id)).stage === 'run', 'the agent works');
    await service.client.pause(id);
    await until(async () => (await service.client.status(id)).host === null, 'its workspace is kept');
  }
  const ended = service.client.result('shelved-old');
  let signalled = 0;
  await until(async () => {
    signalled = (await service.client.raiseFloor(5)).sweep.signalled;
    return signalled > 0;
  }, 'visibility has it');
  assert.equal(signalled, 1);
  assert.equal((await ended).cancel?.reason, 'stale');
  for (const id of ['shelved-new', 'working']) {
    assert.equal((await service.client.status(id)).cancelRequested, null);
    await service.client.cancel(id);
    await service.client.result(id);
  }
});

test('a batch is ended by its name, rollouts that are not listed yet included', async () => {
  const ids = Array.from({ length: 12 }, (_, index) => `of-batch-${index}`);
  service.workers.script.init = () => untilCancelled(); // no sandbox ever becomes free
  const inits = Promise.all(ids.map((id) => service.client.start(input(id, 'batch-2'))));
  const sweeping = service.client.cancelMany({ batchId: 'batch-2' }, 'batchComplete');
  await inits;
  const sweep = await sweeping;
  assert.equal(sweep.aborted, 0);
  const results = await Promise.all(ids.map((id) => service.client.result(id)));
  assert.deepEqual([...new Set(results.map((result) => result.cancel?.reason))], ['batchComplete']);
  assert.equal(sweep.signalled, 12);
});

test('every part of a selection must match, for signals as on the hosts', async () => {
  service.workers.script.init = () => untilCancelled();
  for (const [id, batch] of [
    ['narrow-1', 'batch-3'],
    ['narrow-2', 'batch-3'],
    ['narrow-3', 'batch-4'],
  ] as const) {
    await service.client.start(input(id, batch));
  }
  // None of them has sampled anything, so none is older than any version.
  const stale = await service.client.cancelMany({ batchId: 'batch-3', belowVersion: 5 }, 'stale');
  assert.deepEqual([stale.aborted, stale.signalled], [0, 0]);
  const both = { rolloutIds: ['narrow-1', 'narrow-3'], batchId: 'batch-3' };
  assert.equal((await service.client.cancelMany(both, 'superseded')).signalled, 1);
  assert.equal((await service.client.result('narrow-1')).cancel?.reason, 'superseded');
  for (const id of ['narrow-2', 'narrow-3']) {
    assert.equal((await service.client.status(id)).cancelRequested, null);
    await service.client.cancel(id);
    await service.client.result(id);
  }
});

test('the sweeper begins a history anew when its own is long, and answers all the same', async () => {
  const sweeper = service.client.temporal.workflow.getHandle(CANCEL_SWEEPER);
  const { runId } = await sweeper.describe();
  do {
    const calls = Array.from({ length: 4 }, (_, index) =>
      service.client.cancelMany({ rolloutIds: [`nobody-${index}`] }),
    );
    assert.deepEqual(await Promise.all(calls), Array(4).fill({ aborted: 0, signalled: 0, silentHosts: [] }));
  } while ((await sweeper.describe()).runId === runId);
});

test('no sweep is about everything by accident', async () => {
  await assert.rejects(service.client.cancelMany({}), /name rollouts, a batch, a group or a policy version/);
  await assert.rejects(service.client.cancelMany({ belowVersion: -1 }), /belowVersion/);
});

test('what was terminated from outside gets its one record, by the schedule', async () => {
  const begun = gate();
  service.workers.script.init = () => {
    begun.open();
    return untilCancelled();
  };
  await service.client.start(input('terminated'));
  await begun.passed;
  await service.client.temporal.workflow.getHandle('terminated').terminate('by hand');
  // Newer, so looked at before: its request is none.
  const other = { workflowId: 'no-request', taskQueue: 'nobody', args: [{}] };
  await (await service.client.temporal.workflow.start(ROLLOUT_WORKFLOW, other)).terminate('by hand');
  await registerSchedules(service.client.temporal);
  await registerSchedules(service.client.temporal); // again is harmless
  const schedule = service.client.temporal.schedule.getHandle('rollouts-closed-sweep');
  let record = await store.getTerminal('terminated');
  for (; !record; record = await store.getTerminal('terminated')) {
    await schedule.trigger('ALLOW_ALL'); // visibility may take a moment
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert.equal(record.outcome, 'failed');
  assert.deepEqual([record.failure?.type, record.reward, record.taskId], ['Terminated', null, 'task-1']);
  assert.deepEqual([record.failure?.stage, record.attempt], ['init', 1]);
  assert.deepEqual((await service.client.result('terminated')).failure?.type, 'Terminated');
});
