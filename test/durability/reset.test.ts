import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { WorkflowIdReusePolicy } from '@temporalio/client';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { WORKFLOW_QUEUE } from '../../contracts/queues.ts';
import { RolloutRequest } from '../../contracts/request.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import { decode } from '../support/letters.ts';
import { gate } from '../workflows/kept.ts';
import { CONVERSATION, counting, startService, TURNS, until } from './support.ts';

type Service = Awaited<ReturnType<typeof startService>>;

/** Resets a rollout's newest run to the workflow task that followed an event; returns the new run's id. */
async function reset(
  { client }: Service,
  rolloutId: string,
  after: 'start' | 'init' | 'run',
): Promise<string> {
  const { events } = await client.temporal.workflow.getHandle(rolloutId).fetchHistory();
  const scheduled = events?.find(
    (event) => event.activityTaskScheduledEventAttributes?.activityType?.name === after,
  );
  const from = events?.findIndex(
    ({ activityTaskCompletedEventAttributes: done }) =>
      done && String(done.scheduledEventId) === String(scheduled?.eventId),
  );
  const task = events
    ?.slice(after === 'start' ? 0 : from)
    .find((event) => event.workflowTaskCompletedEventAttributes);
  const { runId } = await client.temporal.workflowService.resetWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId: rolloutId },
    reason: 'a person wants it again',
    requestId: `${rolloutId}-${after}`,
    workflowTaskFinishEventId: task?.eventId ?? null,
  });
  return runId;
}

async function assertUndisturbed(result: RolloutResult): Promise<void> {
  assert.equal(result.outcome, 'completed', JSON.stringify(result.failure));
  assert.equal(result.reward?.total, TURNS - 1);
  const [trajectory] = await readTrajectory(result.trajectory as never);
  assert.equal(decode([...(trajectory?.input_ids ?? []), ...(trajectory?.output_ids ?? [])]), CONVERSATION);
}

/** Holds a rollout up in turn 2 of its first run until it is told to go on there, or has to give up. */
function holdFirstRun() {
  let held = 0;
  const reached = gate();
  const onGenerate = async (_rolloutId: string, turn: number, signal: AbortSignal) => {
    if (turn !== 2 || held++ > 0) return;
    reached.open();
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
  };
  return { onGenerate, reached: reached.passed };
}

for (const after of ['start', 'init'] as const) {
  test(`a reset to the first task after ${after} gives the rollout a fresh sandbox, and one record`, async (t) => {
    const { onGenerate, reached } = holdFirstRun();
    const s = await startService(t, { onGenerate });
    await s.startRunWorker();
    await s.client.start(counting('again'));
    await reached;
    const newRun = await reset(s, 'again', after);
    const result = await s.client.result('again');
    await assertUndisturbed(result);
    assert.equal(result.workflowRunId, newRun);
    // What init had made belongs to the run that was reset.
    assert.equal(result.attempt, after === 'start' ? 1 : 2);
    assert.deepEqual(await s.store.getTerminal('again'), result);
    await until(() => s.host.stats().sandboxes === 0, 'no sandbox is left');
  });
}

test('a reset after the run is graded from the ledger that the first run left', async (t) => {
  const grading = gate();
  const goOn = gate();
  t.after(() => goOn.open());
  let graded = 0;
  const s = await startService(t, {
    onEvaluate: async () => {
      if (graded++ > 0) return;
      grading.open();
      await goOn.passed;
    },
  });
  await s.startRunWorker();
  await s.client.start(counting('graded'));
  await grading.passed;
  const newRun = await reset(s, 'graded', 'run');
  const result = await s.client.result('graded');
  await assertUndisturbed(result);
  assert.equal(result.workflowRunId, newRun);
  goOn.open();
  await until(() => graded === 2, 'both have graded');
  assert.deepEqual(await s.store.getTerminal('graded'), result, 'the record that stands is not replaced');
});

test('a reset of one that has ended, and a second run with its id, find the record that stands', async (t) => {
  let graded = 0;
  const s = await startService(t, { onEvaluate: () => void graded++ });
  await s.startRunWorker();
  const first = await s.client.execute(counting('ended'));
  assert.equal((await s.client.execute(counting('ended'))).workflowRunId, first.workflowRunId);
  for (const after of ['start', 'run'] as const) {
    await reset(s, 'ended', after);
    assert.deepEqual(await s.client.result('ended'), first, `after ${after}`);
  }
  const request = RolloutRequest.parse(counting('ended'));
  const second = await s.client.temporal.workflow.start('rollout', {
    workflowId: 'ended',
    taskQueue: WORKFLOW_QUEUE,
    args: [request],
    workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
  });
  assert.notEqual(second.firstExecutionRunId, first.workflowRunId);
  assert.deepEqual(await second.result(), first);
  assert.deepEqual(await s.store.getTerminal('ended'), first);
  assert.equal(graded, 1);
  const records = readdirSync(s.store.folder, { recursive: true, encoding: 'utf8' });
  assert.equal(records.filter((name) => name.endsWith('terminal.json')).length, 1);
  assert.equal(s.host.stats().sandboxes, 0);
});

test('one that is terminated while it runs leaves no sandbox, and is told as failed', async (t) => {
  const reached = gate();
  const left = gate();
  const s = await startService(t, {
    onGenerate: async (_rolloutId, turn, signal) => {
      if (turn !== 1) return;
      reached.open();
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
      left.open();
    },
  });
  await s.startRunWorker();
  await s.client.start(counting('terminated'));
  await reached.passed;
  await s.client.temporal.workflow.getHandle('terminated').terminate('by a person');
  const result = await s.client.result('terminated');
  assert.deepEqual([result.outcome, result.failure?.type, result.reward], ['failed', 'Terminated', null]);
  await left.passed; // its request for tokens is aborted
  await until(() => s.host.stats().sandboxes === 0, 'the audit has found its sandbox');
});
