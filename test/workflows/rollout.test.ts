import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Context } from '@temporalio/activity';
import { WorkflowFailedError } from '@temporalio/client';
import { controlQueue } from '../../contracts/queues.ts';
import { SEARCH_ATTRIBUTES } from '../../contracts/search-attributes.ts';
import { gate, keepHistory } from './kept.ts';
import { fail, placement, report, untilCancelled, usual } from './scripted.ts';
import { scriptedService } from './scripted-service.ts';

// One init at a time: what else is started waits for it.
const service = scriptedService(undefined, undefined, undefined, 1);

const input = (rolloutId: string) => ({
  rolloutId,
  task: { handler: 'math', id: 'task-1', data: { question: 'q', answer: '1' } },
  batchId: 'batch-1',
  attempts: { rollout: 2, stage: 3 },
  hostLostSeconds: 1,
});

/** Scheduled activities of a rollout's history. */
async function eventsOf(rolloutId: string): Promise<string[]> {
  const history = await keepHistory(service.client, rolloutId);
  return (history.events ?? []).flatMap((event) =>
    event.activityTaskScheduledEventAttributes
      ? [
          `${event.activityTaskScheduledEventAttributes.activityType?.name}@${event.activityTaskScheduledEventAttributes.taskQueue?.name}`,
        ]
      : [],
  );
}

test('three stages on three queues, and the record is returned', async () => {
  const result = await service.client.execute(input('completed'));
  assert.equal(result.outcome, 'completed');
  assert.deepEqual(result.reward, { total: 0.5, parts: { correct: 0.5 } });
  assert.deepEqual(await eventsOf('completed'), [
    'init@rollouts-init',
    'run@rollouts-run-host-a',
    'evaluate@rollouts-eval',
  ]);
  const { typedSearchAttributes: attributes } = await service.client.temporal.workflow
    .getHandle('completed')
    .describe();
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.taskKind), 'math');
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.taskId), 'task-1');
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.batchId), 'batch-1');
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.stage), 'ended');
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.outcome), 'completed');
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.reward), 0.5);
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.host), 'host-a');
  assert.equal(attributes.get(SEARCH_ATTRIBUTES.policyVersion), 3);
});

test('the same id is one rollout, however often it is started', async () => {
  const results = await Promise.all([1, 2, 3].map(() => service.client.execute(input('same-id'))));
  assert.equal(new Set(results.map((result) => result.workflowRunId)).size, 1);
  assert.equal((await service.client.execute(input('same-id'))).workflowRunId, results[0]?.workflowRunId);
  assert.deepEqual(service.workers.calls, ['init', 'run', 'evaluate']);
});

test('what may come back is tried again in the same sandbox, and recorded', async () => {
  let tries = 0;
  service.workers.script.run = async () => (++tries < 3 ? fail('LlmUnreachable', 'down') : report);
  const result = await service.client.execute(input('stage-retry'));
  assert.equal(result.outcome, 'completed');
  assert.equal(result.attempt, 1);
  assert.deepEqual(
    result.retried.map(({ type, stage, message, attempt }) => [type, stage, message, attempt]),
    [
      ['LlmUnreachable', 'run', 'down', 1],
      ['LlmUnreachable', 'run', 'down', 1],
    ],
  );
  await eventsOf('stage-retry');
  assert.deepEqual(service.workers.calls, ['init', 'run', 'run', 'run', 'evaluate']);
});

test('a lost sandbox is a new attempt from init', async () => {
  const attempts: number[] = [];
  service.workers.script.run = async ({ attempt }) => {
    attempts.push(attempt);
    return attempt === 1 ? fail('SandboxLost') : report;
  };
  const result = await service.client.execute(input('new-attempt'));
  assert.equal(result.outcome, 'completed');
  assert.equal(result.attempt, 2);
  assert.deepEqual(attempts, [1, 2]);
  await eventsOf('new-attempt');
  assert.deepEqual(service.workers.calls, ['init', 'run', 'release', 'init', 'run', 'evaluate']);
});

test('a host whose queue nobody takes from is lost, and the rollout begins again elsewhere', async () => {
  const away = { host: 'gone', runQueue: 'rollouts-run-gone', controlQueue: controlQueue('gone') };
  const [begun, goOn] = [gate(), gate()];
  service.workers.script.init = async ({ attempt }) =>
    attempt === 1 ? { ...placement, ...away } : placement;
  service.workers.script.run = async () => {
    begun.open();
    await goOn.passed;
    return report;
  };
  await service.client.start(input('host-lost'));
  await begun.passed; // though no host has confirmed the release
  const released: string[] = [];
  const back = await service.workers.startControl('gone', async ({ placement: { host } }) => {
    released.push(host);
    return usual.release(undefined as never);
  });
  await until(async () => released.length > 0);
  goOn.open();
  const result = await service.client.result('host-lost');
  assert.equal(result.outcome, 'completed');
  assert.deepEqual(
    result.retried.map(({ type }) => type),
    ['HostLost'],
  );
  assert.equal(result.host, 'host-a');
  assert.deepEqual(released, ['gone']);
  await eventsOf('host-lost');
  await back.stop();
});

test('what no retry helps fails with the record in the failure, its sandbox released', async () => {
  service.workers.script.run = async () => fail('LlmRejected', 'too long');
  const result = await service.client.execute(input('failed'));
  assert.equal(result.outcome, 'failed');
  assert.equal(result.reward, null);
  assert.deepEqual(
    { ...result.failure },
    { type: 'LlmRejected', stage: 'run', cause: 'infrastructure', message: 'too long', attempt: 1 },
  );
  await eventsOf('failed');
  assert.deepEqual(service.workers.calls, ['init', 'run', 'release', 'conclude']);
  await assert.rejects(service.client.temporal.workflow.getHandle('failed').result(), WorkflowFailedError);
});

test('a grader that crashes is a failure of evaluate, never a reward', async () => {
  service.workers.script.evaluate = async () => fail('GraderFailed', 'segfault');
  const result = await service.client.execute(input('grader'));
  assert.equal(result.outcome, 'failed');
  assert.equal(result.failure?.stage, 'evaluate');
  assert.equal(result.reward, null);
  assert.deepEqual(service.workers.calls, ['init', 'run', 'evaluate', 'evaluate', 'evaluate', 'conclude']);
});

test('a stage that outlives its deadline is named', async () => {
  service.workers.script.init = () => untilCancelled();
  const result = await service.client.execute({ ...input('deadline'), deadlines: { initSeconds: 1 } });
  assert.equal(result.failure?.type, 'StageDeadline');
  assert.equal(result.failure?.stage, 'init');
  assert.equal(result.failure?.message, 'it took more than 1 s (deadlines.initSeconds)');
});

test('a stage that nobody takes frees its batch in time, and says what expired', async () => {
  const holding = gate();
  service.workers.script.init = () => {
    holding.open();
    return untilCancelled();
  };
  await service.client.start(input('holds'));
  await holding.passed;
  const result = await service.client.execute({ ...input('untaken'), deadlines: { queueSeconds: 1 } });
  const { type, stage, message } = result.failure ?? {};
  assert.deepEqual(
    [type, stage, message],
    ['QueueTimeout', 'init', 'no worker took it within 1 s (deadlines.queueSeconds)'],
  );
  await service.client.cancel('holds');
  await service.client.result('holds');
});

test('a deadline that the request leaves out is what the handler asks for, else the usual', async () => {
  const seen: unknown[] = [];
  service.workers.script.init = async () => ({ ...placement, deadlines: { evaluateSeconds: 900 } });
  service.workers.script.evaluate = (given) => {
    const { runSeconds, evaluateSeconds } = given.request.deadlines;
    seen.push([runSeconds, evaluateSeconds, Context.current().info.startToCloseTimeoutMs]);
    return usual.evaluate(given);
  };
  await service.client.execute(input('asks'));
  await service.client.execute({ ...input('asked'), deadlines: { runSeconds: 7, evaluateSeconds: 8 } });
  service.workers.script.init = usual.init;
  await service.client.execute(input('silent'));
  assert.deepEqual(seen, [
    [600, 900, 900_000],
    [7, 8, 8_000],
    [600, 60, 60_000],
  ]);
});

test('cancel during run reaches the host at once and returns a receipt', async () => {
  let started!: () => void;
  const running = new Promise<void>((resolve) => {
    started = resolve;
  });
  let abort!: () => void;
  service.workers.script.run = async () => {
    started();
    await new Promise<void>((resolve) => {
      abort = resolve;
    });
    const cancel = { reason: 'stale', llmAborted: true, turn: 1, llmMs: 3 } as const;
    return { ...report, ended: 'aborted', cancel, released: { killMs: 20, ms: 9 } };
  };
  service.workers.script.abort = async () => abort();
  await service.client.start(input('cancel-run'));
  await running;
  await service.client.cancel('cancel-run', 'stale');
  const result = await service.client.result('cancel-run');
  assert.equal(result.outcome, 'cancelled');
  const { ms, ...receipt } = result.cancel ?? { ms: -1 };
  assert.ok(ms >= 0);
  assert.deepEqual(receipt, {
    reason: 'stale',
    stage: 'run',
    turn: 1,
    llmAborted: true,
    processesKilled: 1,
    sandboxReleased: true,
    took: { llmMs: 3, killMs: 20, releaseMs: 9 },
  });
  await eventsOf('cancel-run');
  assert.deepEqual(service.workers.calls, ['init', 'run', 'abort', 'conclude']);
});

test('Temporal’s own cancel takes the same path, in any stage', async () => {
  for (const stage of ['init', 'evaluate'] as const) {
    let started!: () => void;
    const running = new Promise<void>((resolve) => {
      started = resolve;
    });
    Object.assign(service.workers.script, usual, {
      [stage]: () => {
        started();
        return untilCancelled();
      },
    });
    const id = `cancel-${stage}`;
    await service.client.start(input(id));
    await running;
    await service.client.temporal.workflow.getHandle(id).cancel();
    const result = await service.client.result(id);
    assert.equal(result.outcome, 'cancelled', stage);
    assert.equal(result.cancel?.reason, 'user');
    assert.equal(result.cancel?.stage, stage);
    assert.equal(result.cancel?.sandboxReleased, true);
    assert.equal(result.reward, null);
    await eventsOf(id);
  }
});

test('cancel while the run waits for a worker releases the sandbox', async () => {
  service.workers.script.init = async () => ({ ...placement, runQueue: 'rollouts-run-nobody' });
  await service.client.start({ ...input('cancel-queued'), hostLostSeconds: 600 });
  await until(async () => (await service.client.status('cancel-queued')).stage === 'run');
  await service.client.cancel('cancel-queued', 'batchComplete');
  const result = await service.client.result('cancel-queued');
  assert.equal(result.outcome, 'cancelled');
  assert.equal(result.cancel?.sandboxReleased, true);
  assert.equal(result.cancel?.processesKilled, 4);
});

test('a rollout that was terminated from outside is told as failed, and a batch goes on', async () => {
  service.workers.script.run = () => untilCancelled();
  await service.client.start(input('terminated'));
  await until(async () => service.workers.calls.includes('run'));
  await service.client.temporal.workflow.getHandle('terminated').terminate('by a person');
  const result = await service.client.result('terminated');
  assert.equal(result.outcome, 'failed');
  assert.equal(result.failure?.type, 'Terminated');
  assert.match(result.failure?.message ?? '', /by a person/);
  assert.equal(result.taskId, 'task-1');
  assert.equal(await service.client.isOpen('terminated'), false);
});

test('a request too large for Temporal is refused before it is sent', async () => {
  const task = { handler: 'math', id: 'large', data: { question: 'x'.repeat(2 ** 21), answer: '1' } };
  await assert.rejects(
    service.client.start({ rolloutId: 'large', task }),
    /task\.data: the request has \d+ bytes/,
  );
});

test('a malformed cancel signal changes nothing; a second cancel neither', async () => {
  let finish!: () => void;
  service.workers.script.run = async () => {
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    return report;
  };
  await service.client.start(input('malformed'));
  const handle = service.client.temporal.workflow.getHandle('malformed');
  await until(async () => finish !== undefined);
  for (const payload of [undefined, null, 'user', { reason: 'because' }, { reason: 1 }, []]) {
    await handle.signal('cancel', payload);
  }
  assert.equal((await service.client.status('malformed')).cancelRequested, null);
  finish();
  assert.equal((await service.client.result('malformed')).outcome, 'completed');
});

test('a request that makes no sense is refused with the field’s name', async () => {
  for (const [patch, field] of [
    [{ limits: { maxTurns: -1 } }, /limits\.maxTurns/],
    [{ deadlines: { runSeconds: 0 } }, /deadlines\.runSeconds/],
    [{ rolloutId: 'a b' }, /rolloutId/],
    [{ sampling: { temperature: -1 } }, /sampling\.temperature/],
  ] as const) {
    await assert.rejects(service.client.start({ ...input('bad'), ...patch }), (error: Error) => {
      assert.match(error.message, field);
      return true;
    });
  }
});

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 50));
}
