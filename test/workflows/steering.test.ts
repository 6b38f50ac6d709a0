import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Context } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import {
  CANCEL_SIGNAL,
  LEAVE_HOST_SIGNAL,
  PAUSE,
  RESUME,
  STAGE_STARTED_SIGNAL,
  STAGE_WAITS_SIGNAL,
} from '../../contracts/signals.ts';
import type { RunInput, RunReport } from '../../contracts/stages.ts';
import { gate, keepHistory } from './kept.ts';
import { fail, placement, report, untilCancelled, usual } from './scripted.ts';
import { scriptedService } from './scripted-service.ts';

const service = scriptedService();

const input = (rolloutId: string) => ({
  rolloutId,
  task: { handler: 'math', id: 'task-1', data: { question: 'q', answer: '1' } },
  attempts: { rollout: 2, stage: 3 },
});
const handleOf = (rolloutId: string) => service.client.temporal.workflow.getHandle(rolloutId);

/** A run stage whose entries end as its sandbox host is told; the last one as usual. */
function scriptEntries() {
  const entries: RunInput[] = [];
  const begun = [gate(), gate(), gate()];
  let end!: (report: RunReport) => void;
  service.workers.script.run = async (given) => {
    const mine = new Promise<RunReport>((resolve) => {
      end = resolve;
    });
    entries.push(given);
    begun[entries.length - 1]?.open();
    return mine;
  };
  service.workers.script.pause = async () => end({ ...report, ended: 'paused', turns: 1, ms: 250 });
  service.workers.script.abort = async ({ reason }) =>
    reason === 'runDeadline'
      ? end({ ...report, ended: 'deadline' })
      : end({ ...report, ended: 'aborted', cancel: { reason, llmAborted: false, turn: 1 } });
  return {
    entries,
    begun: (n: number) => begun[n - 1]?.passed,
    end: (last: RunReport = report) => end(last),
  };
}

test('a paused rollout holds no slot, and goes on in the same sandbox with the time it had left', async () => {
  const { entries, begun, end } = scriptEntries();
  await service.client.start(input('pause-run'));
  await begun(1);
  const paused = await service.client.pause('pause-run');
  assert.equal(paused?.stage, 'paused');
  assert.equal(paused?.pauseRequested, true);
  assert.equal(
    (await service.client.pause('pause-run'))?.stage,
    'paused',
    'pausing a paused one is harmless',
  );
  assert.deepEqual(
    service.workers.calls,
    ['init', 'run', 'pause'],
    'the run stage has ended, the sandbox is kept',
  );
  await service.client.resume('pause-run');
  await begun(2);
  assert.equal(
    (await service.client.resume('pause-run'))?.stage,
    'run',
    'resuming a running one is harmless',
  );
  end();
  const result = await service.client.result('pause-run');
  assert.equal(result.outcome, 'completed');
  assert.deepEqual(
    entries.map(({ entry, remainingMs, placement }) => [entry, remainingMs, placement.sandboxId]),
    [
      [1, 600_000, 'sandbox-1'],
      [2, 599_750, 'sandbox-1'],
    ],
  );
  assert.ok((result.timings.pausedMs ?? 0) > 0);
  assert.equal(await service.client.pause('pause-run'), null, 'one that has ended says so');
  assert.equal(await service.client.cancel('pause-run'), false, 'to cancel it is harmless');
  await assert.rejects(service.client.cancel('nobody'), /not found/);
  assert.equal(await service.client.resume('pause-run'), null);
  await keepHistory(service.client, 'pause-run');
});

test('as signals, pause and resume are harmless in any order and number, also on one that has ended', async () => {
  const { begun, end } = scriptEntries();
  await service.client.start(input('signals'));
  await begun(1);
  for (const signal of [RESUME, RESUME, PAUSE, PAUSE, RESUME, PAUSE, RESUME]) {
    await handleOf('signals').signal(signal);
  }
  await begun(2);
  end();
  assert.equal((await service.client.result('signals')).outcome, 'completed');
});

test('a pause before the run keeps the rollout from it, wherever it is', async () => {
  const inInit = gate();
  const goOn = gate();
  service.workers.script.init = async (given) => {
    inInit.open();
    await goOn.passed;
    return usual.init(given);
  };
  await service.client.start(input('pause-init'));
  await inInit.passed;
  const answer = service.client.pause('pause-init');
  goOn.open();
  assert.equal((await answer)?.stage, 'paused');
  assert.deepEqual(service.workers.calls, ['init']);
  await service.client.resume('pause-init');
  assert.equal((await service.client.result('pause-init')).outcome, 'completed');
  await keepHistory(service.client, 'pause-init');
});

test('cancelled while paused, it leaves no sandbox', async () => {
  const { begun } = scriptEntries();
  await service.client.start(input('cancel-paused'));
  await begun(1);
  await service.client.pause('cancel-paused');
  await service.client.cancel('cancel-paused', 'superseded');
  const result = await service.client.result('cancel-paused');
  assert.equal(result.outcome, 'cancelled');
  assert.deepEqual(
    [result.cancel?.reason, result.cancel?.stage, result.cancel?.turn, result.cancel?.processesKilled],
    ['superseded', 'paused', 1, 4],
  );
  assert.deepEqual(result.cancel?.took, { llmMs: null, killMs: 30, releaseMs: 8 });
  assert.deepEqual(service.workers.calls, ['init', 'run', 'pause', 'release', 'conclude']);
  await keepHistory(service.client, 'cancel-paused');
});

test('the run deadline counts from the word of the worker, stops the agent, and what exists is graded', async () => {
  const { begun, entries } = scriptEntries();
  await service.client.start({ ...input('run-deadline'), deadlines: { runSeconds: 10 } });
  await begun(1);
  // Words of an entry that is not there, and no words at all, start no clock.
  for (const nonsense of [{ attempt: 1, entry: 7, elapsedMs: 9_999 }, {}, null, 'x']) {
    await handleOf('run-deadline').signal(STAGE_STARTED_SIGNAL, nonsense);
  }
  await handleOf('run-deadline').signal(STAGE_STARTED_SIGNAL, { attempt: 1, entry: 1, elapsedMs: 9_900 });
  const result = await service.client.result('run-deadline');
  assert.equal(result.outcome, 'completed', 'as the scripted grader says');
  assert.deepEqual(service.workers.calls, ['init', 'run', 'abort', 'evaluate']);
  assert.equal(entries.length, 1);
  await keepHistory(service.client, 'run-deadline');
});

test('a signal whose payload nobody can read is refused, whatever its name, and the rollout goes on', async () => {
  const { begun, end, entries } = scriptEntries();
  await service.client.start(input('unreadable'));
  await begun(1);
  const { workflowService } = service.client.temporal;
  for (const signalName of [PAUSE, CANCEL_SIGNAL, STAGE_STARTED_SIGNAL, STAGE_WAITS_SIGNAL, 'nothing']) {
    for (const [encoding, text] of [
      ['binary/protobuf', '?'],
      ['json/plain', '{"reason": '],
    ] as const) {
      await workflowService.signalWorkflowExecution({
        namespace: 'default',
        workflowExecution: { workflowId: 'unreadable' },
        signalName,
        input: { payloads: [{ metadata: { encoding: Buffer.from(encoding) }, data: Buffer.from(text) }] },
      });
    }
  }
  assert.equal((await service.client.status('unreadable')).pauseRequested, false);
  end();
  assert.equal((await service.client.result('unreadable')).outcome, 'completed');
  assert.equal(entries.length, 1);
});

test('the clock stands while the agent waits for an LLM server, as its worker says', async () => {
  const { begun, end } = scriptEntries();
  let counted: number | undefined;
  service.workers.script.evaluate = async (given) => {
    counted = given.record.runMs;
    return usual.evaluate(given);
  };
  await service.client.start({ ...input('waits'), deadlines: { runSeconds: 3600 } });
  await begun(1);
  const say = (signal: string, elapsedMs: number, entry = 1) =>
    handleOf('waits').signal(signal, { attempt: 1, entry, elapsedMs });
  const activeMs = async () => (await service.client.status('waits')).activeMs;
  await say(STAGE_STARTED_SIGNAL, 1_000_000);
  await say(STAGE_WAITS_SIGNAL, 7, 2); // of an entry that is not there
  assert.ok((await activeMs()) >= 1_000_000);
  await say(STAGE_WAITS_SIGNAL, 500_000);
  await say(STAGE_WAITS_SIGNAL, 9_000);
  assert.equal(await activeMs(), 500_000, 'as the worker has measured, and only once');
  await say(STAGE_STARTED_SIGNAL, 2_000);
  assert.ok((await activeMs()) >= 502_000);
  await say(STAGE_WAITS_SIGNAL, 100_000);
  end({ ...report, ms: 620_000 });
  assert.equal((await service.client.result('waits')).outcome, 'completed');
  assert.equal(counted, 620_000, 'the whole entry, waiting left out');
  await keepHistory(service.client, 'waits');
});

test('the clock of a lost worker stops at its last heartbeat', async () => {
  const entries: RunInput[] = [];
  const over = gate();
  service.workers.script.run = async (given) => {
    entries.push(given);
    if (entries.length === 1) {
      Context.current().heartbeat({ turn: 3, tokens: 100, ms: 1234 });
      await over.passed; // silent for as long as the test goes on
    }
    return report;
  };
  const result = await service.client.execute({ ...input('lost-worker'), heartbeatTimeoutSeconds: 1 });
  assert.deepEqual(
    result.retried.map(({ type, stage }) => [type, stage]),
    [['WorkerLost', 'run']],
  );
  assert.deepEqual(
    entries.map(({ entry, remainingMs }) => [entry, remainingMs]),
    [
      [1, 600_000],
      [2, 598_766],
    ],
  );
  over.open();
  await keepHistory(service.client, 'lost-worker');
});

test('a deploy is no failure: the next worker goes on at once', async () => {
  let entries = 0;
  service.workers.script.run = async () => (++entries < 6 ? { ...report, ended: 'shutdown' } : report);
  const result = await service.client.execute(input('deploys'));
  assert.equal(result.outcome, 'completed');
  assert.deepEqual(result.retried, []);
  assert.equal(entries, 6);
  await keepHistory(service.client, 'deploys');
});

test('failures between which turns were made do not add up', async () => {
  let tries = 0;
  const down = (turn: number) => {
    const details = [{ turn, tokens: 0, ms: 10 }];
    throw ApplicationFailure.create({ type: 'LlmUnreachable', message: 'down', nonRetryable: true, details });
  };
  service.workers.script.run = async () => (++tries <= 4 ? down(tries) : report);
  assert.equal((await service.client.execute(input('progress'))).outcome, 'completed');
  tries = -100;
  service.workers.script.run = async () => (++tries <= 4 ? down(1) : report);
  const stuck = await service.client.execute({ ...input('no-progress'), attempts: { rollout: 2, stage: 2 } });
  assert.equal(stuck.failure?.type, 'LlmUnreachable');
});

test('the deadline of the whole ends a rollout wherever it is, and says so', async () => {
  const { begun } = scriptEntries();
  await service.client.start({ ...input('total'), deadlines: { totalSeconds: 2 } });
  await begun(1);
  await service.client.pause('total');
  const result = await service.client.result('total');
  assert.equal(result.outcome, 'cancelled');
  assert.deepEqual([result.cancel?.reason, result.cancel?.stage], ['deadline', 'paused']);
  await keepHistory(service.client, 'total');
});

test('an update with a malformed payload is refused with the field’s name, a right one is answered', async () => {
  const { begun } = scriptEntries();
  await service.client.start(input('update'));
  await begun(1);
  await assert.rejects(
    handleOf('update').executeUpdate('cancel', { args: [{ reason: 'bored' }] }),
    (error: Error) => /reason: expected one of/.test(String(error.cause)),
  );
  const answer = await handleOf('update').executeUpdate('cancel', { args: [{ reason: 'shutdown' }] });
  assert.deepEqual((answer as { cancelRequested: string }).cancelRequested, 'shutdown');
  assert.equal((await service.client.result('update')).cancel?.reason, 'shutdown');
});

test('no deadline or limit can be nothing or less', async () => {
  for (const [field, value] of [
    ['deadlines.totalSeconds', { deadlines: { totalSeconds: 0 } }],
    ['deadlines.runSeconds', { deadlines: { runSeconds: -1 } }],
    ['deadlines.totalSeconds', { deadlines: { totalSeconds: 1e-9 } }],
    ['limits.maxTurns', { limits: { maxTurns: -1 } }],
  ] as const) {
    await assert.rejects(service.client.start({ ...input('nothing'), ...value }), (error: Error) =>
      error.message.includes(field),
    );
  }
});

test('a long pause gives the sandbox back; the attempt goes on in another, on any host', async () => {
  const { entries, begun, end } = scriptEntries();
  const shelf = { file: '/store/workspace.tar', sha256: 'ab', bytes: 7 };
  const shelved = gate();
  service.workers.script.shelve = async ({ entry, placement: from }) => {
    assert.deepEqual([entry, from.sandboxId], [1, placement.sandboxId]);
    shelved.open();
    return shelf;
  };
  service.workers.script.init = async ({ shelf: given }) => {
    if (!given) return placement;
    assert.deepEqual(given, shelf);
    return { ...placement, sandboxId: 'sandbox-2' };
  };
  await service.client.start({ ...input('shelved'), pausedSandboxSeconds: 1 });
  await begun(1);
  await service.client.pause('shelved');
  await shelved.passed;
  await service.client.resume('shelved');
  await begun(2);
  assert.equal(entries[1]?.placement.sandboxId, 'sandbox-2');
  assert.equal(entries[1]?.attempt, 1);
  assert.equal(entries[1]?.remainingMs, 600_000 - 250);
  end();
  assert.equal((await service.client.result('shelved')).outcome, 'completed');
  assert.deepEqual(service.workers.calls, ['init', 'run', 'pause', 'shelve', 'init', 'run', 'evaluate']);
  await keepHistory(service.client, 'shelved');
});

test('what cannot leave a drained host begins again elsewhere at once; with no attempt left it stays', async () => {
  const { entries, begun, end } = scriptEntries();
  await service.client.start(input('drained'));
  await begun(1);
  const handle = handleOf('drained');
  for (const nonsense of [{}, null, { host: 'host-b' }]) await handle.signal(LEAVE_HOST_SIGNAL, nonsense);
  assert.deepEqual(service.workers.calls, ['init', 'run'], 'it is on another host');
  await service.client.leaveHost('drained', placement.host);
  await begun(2);
  assert.deepEqual((await service.client.status('drained')).retried, ['HostDrained']);
  await service.client.leaveHost('drained', placement.host);
  await begun(3);
  await service.client.leaveHost('drained', placement.host);
  end();
  const result = await service.client.result('drained');
  assert.equal(result.outcome, 'completed');
  assert.deepEqual(
    entries.map(({ attempt, entry }) => [attempt, entry]),
    [
      [1, 1],
      [2, 1],
      [2, 2],
    ],
  );
  const left = ['init', 'run', 'pause', 'shelve'];
  assert.deepEqual(service.workers.calls, [...left, 'release', ...left, 'run', 'evaluate']);
  assert.equal(
    await service.client.leaveHost('drained', placement.host),
    false,
    'one that has ended says so',
  );
  await keepHistory(service.client, 'drained');
});

test('one that leaves while it is paused stays paused, and goes on elsewhere at resume', async () => {
  const { entries, begun, end } = scriptEntries();
  const shelf = { file: '/store/workspace.tar', sha256: 'ab', bytes: 7 };
  service.workers.script.shelve = async () => shelf;
  let drained = 0;
  service.workers.script.init = async ({ shelf: given }) => {
    if (!given) return placement;
    if (drained++ === 0) fail('HostDrained'); // a host that had asked for work before it was drained
    return { ...placement, sandboxId: 'sandbox-2' };
  };
  await service.client.start(input('drained-paused'));
  await begun(1);
  await service.client.pause('drained-paused');
  await service.client.leaveHost('drained-paused', placement.host);
  while ((await service.client.status('drained-paused')).host !== null);
  assert.equal((await service.client.status('drained-paused')).stage, 'paused');
  await service.client.resume('drained-paused');
  await begun(2);
  assert.deepEqual([entries[1]?.placement.sandboxId, entries[1]?.attempt], ['sandbox-2', 1]);
  end();
  const result = await service.client.result('drained-paused');
  assert.deepEqual([result.outcome, result.retried], ['completed', []]);
  await keepHistory(service.client, 'drained-paused');
});

test('told to pause again while it gets its workspace back, a rollout does', async () => {
  const { begun, end } = scriptEntries();
  const filling = gate();
  const filled = gate();
  service.workers.script.shelve = async () => ({ file: '/store/workspace.tar', sha256: 'ab', bytes: 7 });
  service.workers.script.init = async ({ shelf }) => {
    if (!shelf) return placement;
    filling.open();
    await filled.passed;
    return { ...placement, sandboxId: 'sandbox-2' };
  };
  await service.client.start({ ...input('unshelved'), pausedSandboxSeconds: 1 });
  await begun(1);
  await service.client.pause('unshelved');
  while ((await service.client.status('unshelved')).host !== null);
  await service.client.resume('unshelved');
  await filling.passed;
  const paused = service.client.pause('unshelved');
  while (!(await service.client.status('unshelved')).pauseRequested);
  filled.open();
  assert.deepEqual([(await paused)?.stage, (await paused)?.host], ['paused', placement.host]);
  await service.client.resume('unshelved');
  await begun(2);
  end();
  assert.equal((await service.client.result('unshelved')).outcome, 'completed');
});

test('cancelled without its sandbox, a rollout has none to release', async () => {
  const { begun } = scriptEntries();
  const shelved = gate();
  service.workers.script.shelve = async () => {
    shelved.open();
    return { file: '/store/workspace.tar', sha256: 'ab', bytes: 7 };
  };
  await service.client.start({ ...input('shelved-cancel'), pausedSandboxSeconds: 1 });
  await begun(1);
  await service.client.pause('shelved-cancel');
  await shelved.passed;
  while ((await service.client.status('shelved-cancel')).host !== null) await shelved.passed;
  await service.client.cancel('shelved-cancel', 'stale');
  const result = await service.client.result('shelved-cancel');
  assert.deepEqual([result.outcome, result.cancel?.stage, result.cancel?.turn], ['cancelled', 'paused', 1]);
  assert.equal(result.cancel?.sandboxReleased, true);
  assert.deepEqual(service.workers.calls, ['init', 'run', 'pause', 'shelve', 'conclude']);
});

test('a workspace too large to be kept keeps its sandbox', async () => {
  const { entries, begun, end } = scriptEntries();
  const asked = gate();
  service.workers.script.shelve = async () => {
    asked.open();
    return null;
  };
  await service.client.start({ ...input('too-large'), pausedSandboxSeconds: 1 });
  await begun(1);
  await service.client.pause('too-large');
  await asked.passed;
  await service.client.resume('too-large');
  await begun(2);
  assert.equal(entries[1]?.placement.sandboxId, placement.sandboxId);
  end();
  assert.equal((await service.client.result('too-large')).outcome, 'completed');
});

test('a pause gives the wait for a sandbox up, and resume takes it up again', async () => {
  const waits = gate();
  service.workers.script.init = async () => {
    waits.open();
    return untilCancelled();
  };
  await service.client.start(input('pause-queued'));
  await waits.passed;
  assert.equal((await service.client.pause('pause-queued'))?.stage, 'paused');
  assert.deepEqual(service.workers.calls, ['init']);
  service.workers.script.init = usual.init;
  await service.client.resume('pause-queued');
  const result = await service.client.result('pause-queued');
  assert.deepEqual([result.outcome, result.attempt, result.retried], ['completed', 1, []]);
  assert.deepEqual(service.workers.calls, ['init', 'init', 'run', 'evaluate']);
  await keepHistory(service.client, 'pause-queued');
});

test('what was started past the client and is no request fails at once and says why', async () => {
  for (const [args, problem] of [
    [[{}], /rolloutId/],
    [[{ ...input('odd'), rolloutId: 'odd' }], /deadlines.initSeconds/],
    [[], /rolloutId/],
  ] as const) {
    const running = service.client.temporal.workflow.execute('rollout', {
      workflowId: 'odd',
      taskQueue: 'rollouts-workflows',
      args: [...args],
    });
    await assert.rejects(running, ({ cause }: { cause?: Error }) => problem.test(cause?.message ?? ''));
  }
});
