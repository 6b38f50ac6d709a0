import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { Worker } from '@temporalio/worker';
import { GroupStore } from '../../activities/groups/group-store.ts';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { cancelBatch, showBatch } from '../../client/commands/batch.ts';
import { runGroups } from '../../client/commands/batch-run.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import {
  type BatchEvent,
  type BatchInput,
  type BatchResult,
  type BatchStatus,
  batchWorkflowId,
} from '../../contracts/batch.ts';
import {
  type GroupInput,
  type GroupResult,
  type GroupStatus,
  groupWorkflowId,
} from '../../contracts/group.ts';
import { BatchRules, GroupRules } from '../../contracts/group-rules.ts';
import { WORKFLOW_QUEUE } from '../../contracts/queues.ts';
import { RolloutRequest } from '../../contracts/request.ts';
import { gradeAsTasksSay as gradeWithTrajectories } from '../gateway/graded.ts';
import { until } from '../support/until.ts';
import { workflowBundle } from '../support/workflows.ts';
import { gate, keepHistory } from './kept.ts';
import { fail, report, untilCancelled, usual } from './scripted.ts';
import { scriptedService } from './scripted-service.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'batches-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const groups = new GroupStore(folder);
// Histories of batches are short here, so that each goes on in several.
const service = scriptedService(new TrajectoryStore(folder), {
  'limit.historyCount.suggestContinueAsNew': '40',
});

const {
  rolloutId: _,
  task: __,
  sample: ___,
  ...template
} = RolloutRequest.parse({
  rolloutId: 'x',
  task: { handler: 'math', id: 'x', data: {} },
});

/** Tasks whose data says what each sample is rewarded with. */
function tasks(...rewards: number[][]) {
  return groups.putTasks(
    rewards.map((each, index) => ({ handler: 'math', id: `t${index}`, data: { rewards: each } })),
  );
}

/** Rewards as the task says; a sample that stands in for a lost one gets 0.5. */
function gradeAsTasksSay() {
  service.workers.script.evaluate = async (input) => {
    const result = await usual.evaluate(input);
    const { rewards } = input.request.task.data as { rewards: number[] };
    const total = rewards[input.request.sample] ?? 0.5;
    return { ...result, reward: { total, parts: {} } };
  };
}

const startGroup = (input: GroupInput) =>
  service.client.temporal.workflow.start('rolloutGroup', {
    workflowId: groupWorkflowId(input.groupId),
    taskQueue: WORKFLOW_QUEUE,
    args: [input],
  });

async function startBatch(batchId: string, given: Partial<BatchInput> & { rules: BatchInput['rules'] }) {
  const input = { batchId, sources: [], group: GroupRules.parse({ samples: 2 }), template, ...given };
  return service.client.temporal.workflow.start<(input: BatchInput) => Promise<BatchResult>>('rolloutBatch', {
    workflowId: batchWorkflowId(batchId),
    taskQueue: WORKFLOW_QUEUE,
    args: [input],
  });
}

const source = ({ set, tasks: count }: { set: string; tasks: number }, domain = 'sums', weight = 1) => ({
  ...{ set, domain, weight },
  tasks: count,
});

test('a group has the rewards of its samples, and another sample in the place of one that was lost', async () => {
  // For its own end, which is as long as one likes.
  waiting = await startBatch('waits', { rules: BatchRules.parse({ groups: 1, carryFrom: 'waits' }) });
  gradeAsTasksSay();
  const { evaluate } = service.workers.script;
  service.workers.script.evaluate = async (input) => {
    if (input.request.rolloutId === 'g1.1') fail('HandlerFailed');
    return evaluate(input);
  };
  const { set } = await tasks([0, 1, 1]);
  const rules = GroupRules.parse({ samples: 3 });
  const once = { ...template, attempts: { rollout: 1, stage: 1 } };
  const handle = await startGroup({ groupId: 'g1', task: { set, row: 0 }, rules, template: once });
  const result = (await handle.result()) as GroupResult;
  assert.equal(result.verdict, 'useful');
  assert.deepEqual(
    result.samples.map(({ rolloutId, outcome, shaped, failure }) => [rolloutId, outcome, shaped, failure]),
    [
      ['g1.0', 'completed', 0, null],
      ['g1.1', 'failed', null, 'HandlerFailed'],
      ['g1.2', 'completed', 1, null],
      ['g1.3', 'completed', 0.5, null],
    ],
  );
  assert.deepEqual(
    {
      replaced: result.replaced,
      rewardMean: result.rewardMean,
      versions: result.versions,
      taskId: result.taskId,
    },
    { replaced: 1, rewardMean: 0.5, versions: [3, 3], taskId: 't0' },
  );
  assert.deepEqual(await groups.getGroup('g1'), result);
});

/** Begun early, so that nothing has to wait for its deadline. */
let late: Awaited<ReturnType<typeof startGroup>>;
/** Begun early, so that its history grows meanwhile. */
let waiting: Awaited<ReturnType<typeof startBatch>>;

test('a group that is cancelled ends its rollouts', async () => {
  gradeAsTasksSay();
  const stuck = gate();
  service.workers.script.run = async ({ request }) => {
    if (request.sample === 0) return report;
    if (request.groupId === 'g3') stuck.open();
    return untilCancelled();
  };
  const { set } = await tasks([1, 0, 0]);
  const task = { set, row: 0 };
  const rules = GroupRules.parse({ samples: 2 });
  const limits = { ...rules, deadlineSeconds: 10, minSamples: 1 };
  late = await startGroup({ groupId: 'g3', task, rules: limits, template });
  const cancelled = await startGroup({ groupId: 'g2', task, rules, template });
  const begun = async () => (await cancelled.query<GroupStatus>('groupStatus')).open;
  await until(async () => (await begun()) > 0, 'it has begun');
  await cancelled.signal('cancel', { reason: 'superseded' });
  const { verdict } = (await cancelled.result()) as GroupResult;
  assert.equal(verdict, 'cancelled');
  assert.deepEqual(await service.client.isOpen('g2.1'), false);
  await stuck.passed;
});

test('a batch drops groups with equal rewards, begins others, and takes its own in the order of the starts', async () => {
  gradeAsTasksSay();
  const { run } = service.workers.script;
  const first = gate();
  service.workers.script.run = async (input) => {
    if (input.request.rolloutId === 'b1:0.0.0') await first.passed;
    return run(input);
  };
  const set = await tasks([0, 1], [0, 0], [1, 1], [1, 0], [0, 1], [0, 1]);
  const rules = BatchRules.parse({ groups: 2, oversampling: 1.5 });
  const batch = await startBatch('b1', { sources: [source(set)], rules });
  const isThere = async (groupId: string) => (await groups.getGroup(groupId)) !== undefined;
  await until(() => isThere('b1:0.3'), 'the fourth has ended');
  const status = await batch.query<BatchStatus>('batchStatus');
  assert.deepEqual(status.admitted, [], 'the first is open, whatever has ended since');
  first.open();
  const result = await batch.result();
  assert.equal(result.end, 'full');
  assert.deepEqual(result.groups, ['b1:0.0', 'b1:0.3']);
  assert.deepEqual(result.counts.dropped, { allZero: 1, allOne: 1 });
  assert.deepEqual(result.surplus, []);
  const events = await batch.query<{ number: number; kind: string; groupId?: string }[], [number]>(
    'batchEvents',
    0,
  );
  assert.deepEqual(
    events.map(({ number }) => number),
    events.map((_, index) => index + 1),
  );
  assert.deepEqual(
    events.filter(({ kind }) => kind !== 'started').map(({ kind, groupId }) => [kind, groupId]),
    [
      ['admitted', 'b1:0.0'],
      ['dropped', 'b1:0.1'],
      ['dropped', 'b1:0.2'],
      ['admitted', 'b1:0.3'],
      ['ended', undefined],
    ],
  );
});

test('a batch without enough tasks ends with what it has', async () => {
  gradeAsTasksSay();
  const set = await tasks([0, 1], [0, 0]);
  const rules = BatchRules.parse({ groups: 2 });
  const result = await (await startBatch('b2', { sources: [source(set)], rules })).result();
  assert.deepEqual([result.end, result.groups], ['exhausted', ['b2:0.0']]);
  assert.equal(result.counts.rewardMean, 0.25);
});

test('the command line shows a batch, cancels one, and says where there is none, or none any more', async () => {
  service.workers.script.run = untilCancelled;
  const rules = BatchRules.parse({ groups: 1 });
  await startBatch('shown', { sources: [source(await tasks([0, 1]))], rules });
  const config = loadConfig({
    env: {},
    flags: { temporal: { address: service.address }, store: { folder } },
  });
  let said: { text: string; value: unknown } | undefined;
  const output = {
    ...{ json: false, note: () => {} },
    result: (value: unknown, text: () => string) => {
      said = { text: text(), value };
    },
  };
  assert.equal(await showBatch(config, 'shown', output), 0);
  assert.match(said?.text ?? '', /open[\s\S]*0 of 1/);
  assert.equal(await cancelBatch(config, 'shown', 'superseded', output), 0);
  await service.client.temporal.workflow.getHandle(batchWorkflowId('shown')).result();
  await showBatch(config, 'shown', output);
  assert.equal((said as unknown as { value: BatchResult }).value.end, 'cancelled');
  await assert.rejects(showBatch(config, 'nobody', output), {
    type: 'InvalidRequest',
    message: 'there is no batch nobody',
  });
  const lost = await startBatch('lost', { sources: [source(await tasks([0, 1]))], rules });
  await until(() => service.client.isKnown(groupWorkflowId('lost:0.0')), 'its group');
  await showBatch(config, 'lost', output);
  await lost.terminate();
  await assert.rejects(showBatch(config, 'lost', output), {
    type: 'Terminated',
    message: 'batch lost was closed from outside (terminated): it has no result and will have none',
  });
  const group = service.client.temporal.workflow.getHandle(groupWorkflowId('lost:0.0'));
  await group.signal('cancel', { reason: 'user' });
});

test('the command line runs a batch of groups over a file of tasks, and takes it up again', async () => {
  const store = new TrajectoryStore(folder);
  gradeWithTrajectories(service, store);
  const config = loadConfig({
    env: {},
    flags: { temporal: { address: service.address }, store: { folder } },
  });
  const registry = await loadHandlers({ handlers: [] }, { python: () => loadTools().python });
  const file = path.join(folder, 'tasks.jsonl');
  const rows = [
    [0, 1],
    [1, 1],
    [1, 0],
  ].map((rewards, id) => JSON.stringify({ id, question: 'What is 1 + 1?', answer: '#### 2', rewards }));
  writeFileSync(file, rows.join('\n'));
  const out = path.join(folder, 'out.jsonl');
  const options = { tasks: file, handler: 'math', groups: 2, samples: 2, batch: 'from-a-file', out };
  const notes: string[] = [];
  const ends: unknown[] = [];
  const output = {
    ...{ json: true, note: (line: string) => notes.push(line) },
    result: (value: unknown) => ends.push((value as BatchResult).end),
  };
  for (const begun of ['batch from-a-file', 'batch from-a-file, begun before']) {
    notes.length = 0;
    assert.equal(await runGroups(config, registry, options, output), 0);
    assert.deepEqual(notes, [
      begun,
      '[1] from-a-file:0.0 0 useful, mean reward 0.50 of 2',
      '[2] from-a-file:0.2 2 useful, mean reward 0.50 of 2',
    ]);
    const lines = readFileSync(out, 'utf8').trim().split('\n');
    assert.deepEqual(
      lines.map((line) => JSON.parse(line)).map((line) => [line.task.id, line.reward.total]),
      [
        ['0', 0],
        ['0', 1],
        ['2', 1],
        ['2', 0],
      ],
    );
  }
  assert.deepEqual(ends, ['full', 'full']);
  await assert.rejects(runGroups(config, registry, { ...options, groups: 3 }, output), {
    type: 'InvalidRequest',
    message: '--batch: from-a-file was begun with another request',
  });
  const few = { ...options, groups: 3, batch: 'too-few', out: path.join(folder, 'few.jsonl') };
  assert.equal(await runGroups(config, registry, few, output), 1, 'it is not full');
  writeFileSync(file, `${rows[0]}\n{"id": 7}\n`);
  await assert.rejects(runGroups(config, registry, { ...options, batch: 'bad' }, output), {
    type: 'InvalidTask',
    message: /tasks.jsonl, line 2: /,
  });
});

test('what a full batch leaves over goes to the next, once, open groups too', async () => {
  gradeAsTasksSay();
  const { run } = service.workers.script;
  const held = gate();
  service.workers.script.run = async (input) => {
    if (input.request.groupId === 'b3:0.2') await held.passed;
    return run(input);
  };
  const set = await tasks([0, 1], [0, 1], [0, 1]);
  const rules = BatchRules.parse({ groups: 1, oversampling: 3, surplus: 'carry' });
  const before = await (await startBatch('b3', { sources: [source(set)], rules })).result();
  assert.deepEqual([before.groups, before.surplus], [['b3:0.0'], ['b3:0.1', 'b3:0.2']]);
  const carrying = async (batchId: string, carryFrom: string, ...rewards: number[][]) => {
    const next = BatchRules.parse({ groups: 1, surplus: 'carry', carryFrom });
    return startBatch(batchId, { sources: [source(await tasks(...rewards))], rules: next });
  };
  const second = await (await carrying('b4', 'b3', [0, 0])).result();
  assert.deepEqual([second.groups, second.surplus], [['b3:0.1'], ['b3:0.2']]);
  const other = await (await carrying('b5', 'b3', [0, 1])).result();
  assert.deepEqual(other.groups, ['b5:0.0'], 'what a batch left is left once');
  const third = await carrying('b4b', 'b4', [0, 0]);
  const taken = async () => (await third.query<BatchStatus>('batchStatus')).counts.carried;
  await until(async () => (await taken()) === 1, 'what was left over again is taken, open as it is');
  held.open();
  assert.deepEqual((await third.result()).groups, ['b3:0.2']);
});

test('a batch that is cancelled ends its groups and their rollouts', async () => {
  service.workers.script.run = untilCancelled;
  const rules = BatchRules.parse({ groups: 1 });
  const batch = await startBatch('b6', { sources: [source(await tasks([0, 1], [0, 1]))], rules });
  const { client } = service;
  const group = client.temporal.workflow.getHandle(groupWorkflowId('b6:0.0'));
  const runs = async () => {
    for await (const _ of client.list({ batchId: 'b6', stage: 'run' })) return true;
    return false;
  };
  await until(runs, 'an agent works');
  await batch.signal('cancel', { reason: 'user' });
  const result = await batch.result();
  assert.equal(result.end, 'cancelled');
  assert.equal(((await group.result()) as GroupResult).verdict, 'cancelled');
  assert.equal(await client.isOpen('b6:0.0.0'), false);
});

test('a batch goes on in a new history with its groups open, and through the death of its workers', async () => {
  gradeAsTasksSay();
  const { run } = service.workers.script;
  const held = gate();
  service.workers.script.run = async (input) => {
    if (Number(/\.(\d+)$/.exec(input.request.groupId ?? '')?.[1]) >= 6) await held.passed;
    return run(input);
  };
  const equal = Array.from({ length: 6 }, () => [1, 1]);
  const set = await tasks(...equal, [0, 1], [1, 0], [0, 1], [0, 1]);
  const rules = BatchRules.parse({ groups: 4, oversampling: 1 });
  const batch = await startBatch('b7', { sources: [source(set)], rules });
  const { temporal } = service.client;
  const latest = temporal.workflow.getHandle<(input: BatchInput) => Promise<BatchResult>>(batch.workflowId);
  const dropped = async () => (await latest.query<BatchStatus>('batchStatus')).counts.dropped.allOne;
  await until(async () => (await dropped()) === 6, 'six are dropped');
  await service.workers.restartWorkflows();
  held.open();
  assert.deepEqual((await latest.result()).groups, ['b7:0.6', 'b7:0.7', 'b7:0.8', 'b7:0.9']);
  assert.notEqual((await latest.describe()).runId, batch.firstExecutionRunId, 'in another history');
  const events = (after: number) => latest.query<BatchEvent[], [number]>('batchEvents', after);
  const all = await events(0);
  assert.deepEqual(
    all.map(({ number }) => number),
    all.map((_, index) => index + 1),
    'events are numbered on',
  );
  assert.deepEqual([all.length, all.at(-1)?.kind], [21, 'ended']);
  assert.deepEqual(await events(19), all.slice(19));
});

test('a floor that is raised reaches a batch that runs, and what has ended and waits for its turn', async () => {
  gradeAsTasksSay();
  const { run } = service.workers.script;
  const held = gate();
  service.workers.script.run = async (input) => {
    if (input.request.groupId === 'b10:0.0') await held.passed;
    return run(input);
  };
  const sources = [source(await tasks([0, 1], [0, 1]))];
  const batch = await startBatch('b10', { sources, rules: BatchRules.parse({ groups: 2 }) });
  await until(async () => (await groups.getGroup('b10:0.1')) !== undefined, 'the second group has ended');
  await service.client.raiseFloor(4); // tokens here are of version 3
  held.open();
  const { end, counts } = await batch.result();
  assert.deepEqual([end, counts.dropped], ['exhausted', { stale: 2 }]);
});

test('a group at its deadline is judged by what it has', async () => {
  const result = (await late.result()) as GroupResult;
  assert.equal(result.verdict, 'allOne');
  assert.deepEqual(
    result.samples.map(({ outcome, cancelled: why }) => [outcome, why]),
    [
      ['completed', null],
      ['cancelled', 'deadline'],
    ],
  );
});

test('a batch that waits for the end of another for long goes on in a new history', async () => {
  const { temporal } = service.client;
  const handle = temporal.workflow.getHandle(waiting.workflowId);
  const isAnother = async () => (await handle.describe()).runId !== waiting.firstExecutionRunId;
  await until(isAnother, 'another history');
  await handle.signal('cancel', { reason: 'user' });
  assert.equal(((await handle.result()) as BatchResult).end, 'cancelled');
});

test('histories of groups and batches replay', async () => {
  const { temporal } = service.client;
  const bundle = await workflowBundle();
  const kept = ['batch:b7', 'group:b7:0.6', 'b7:0.6.0'];
  for (const workflowId of kept) await keepHistory(service.client, workflowId);
  const kinds: Record<string, number> = {};
  for await (const { workflowId, runId, type } of temporal.workflow.list({
    query: `WorkflowType != 'rollout'`,
  })) {
    kinds[type] = (kinds[type] ?? 0) + 1;
    if (type === 'rolloutGroup' && (kinds[type] as number) > 5) continue;
    const history = await temporal.workflow.getHandle(workflowId, runId).fetchHistory();
    await Worker.runReplayHistory({ workflowBundle: bundle }, history, workflowId);
  }
  assert.ok((kinds.rolloutBatch as number) >= 9, 'each history of each batch');
});
