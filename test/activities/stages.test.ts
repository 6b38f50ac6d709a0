import assert from 'node:assert/strict';
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { ApplicationFailure } from '@temporalio/activity';
import { MockActivityEnvironment } from '@temporalio/testing';
import { z } from 'zod';
import type { Policy } from '../../activities/agent/agent.ts';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { makeControlActivities } from '../../activities/control.ts';
import { makeEvaluateActivities } from '../../activities/evaluate.ts';
import { bash, defineHandler, type EvaluateContext } from '../../activities/handlers/kit.ts';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { makeInitActivities } from '../../activities/init.ts';
import type { PoolView } from '../../activities/llm/pool-view.ts';
import { makeRunActivities } from '../../activities/run.ts';
import { type AttemptKey, readTrajectory, TrajectoryStore } from '../../activities/trajectory/store.ts';
import { loadTools } from '../../config/tools.ts';
import { recordIdentity, recordTimings } from '../../contracts/record.ts';
import type { ConcludeInput, Placement, RunReport, Shelf } from '../../contracts/stages.ts';
import type { Task } from '../../contracts/task.ts';
import { startHost } from '../sandbox/support.ts';
import { decode, letterPolicy } from '../support/letters.ts';
import { viewOf } from '../support/pool.ts';
import { settledRequest } from '../support/settled.ts';
import { gate } from '../workflows/kept.ts';

const request = settledRequest({
  rolloutId: 'stages:1',
  task: { handler: 'write', id: 'one', data: { content: 'hello' } },
});

const RUN_ID = 'workflow-run-1';

let grade: () => number = () => 1;

/** What a test makes a part of the handler do instead. */
let instead: Partial<Record<'init' | 'prompt' | 'outcome', () => unknown>> & {
  evaluate?: (context: EvaluateContext<{ content: string }>) => unknown;
} = {};

/** A task that uses every part: a file at init, a shell, an outcome read from the sandbox, a grade. */
const write = defineHandler({
  name: 'write',
  description: 'Write a file.',
  schema: z.object({ content: z.string() }),
  example: { content: 'x' },
  tools: () => [bash],
  prompt: async () => (instead.prompt?.() as never) ?? [{ role: 'user', content: 'Copy in.txt to out.txt.' }],
  init: async ({ task, sandbox }) => {
    await instead.init?.();
    await sandbox.writeFile(`${sandbox.workspace}/in.txt`, task.content);
  },
  outcome: async ({ sandbox }) =>
    (instead.outcome?.() as never) ?? {
      file: (await sandbox.readFile(`${sandbox.workspace}/out.txt`)).toString(),
    },
  evaluate: async (context) => {
    const { task, outcome } = context;
    await instead.evaluate?.(context);
    const right = outcome.file === task.content ? grade() : 0;
    return { total: right, parts: { right } };
  },
});

const replies = ['```bash\ncp in.txt out.txt; echo $?\n```', '```bash\ncat out.txt\n```', 'done'];

/** The four factories around a real sandbox host and a real store. */
async function stages(t: TestContext, policy: Policy = letterPolicy({ replies })) {
  const { client: sandboxes, stateDir } = await startHost(t);
  const handlers = new HandlerRegistry([write as never]);
  const store = new TrajectoryStore(path.join(stateDir, 'store'));
  const policies = { open: async () => ({ ...policy, close: () => {} }) };
  const workflowExecution = { workflowId: request.rolloutId, runId: RUN_ID };
  const env = new MockActivityEnvironment({ heartbeatTimeoutMs: 30_000, workflowExecution });
  const inActivity = <R>(work: () => Promise<R>) => env.run(work) as Promise<R>;
  const { init } = makeInitActivities({ handlers, sandboxes, host: loadTools(), store });
  const { run } = makeRunActivities({ handlers, sandboxes, policies, parser: fenced, store });
  const { evaluate, conclude } = makeEvaluateActivities({ handlers, store, sandboxes });
  const { abort, pause, release, shelve, copySoFar } = makeControlActivities({ sandboxes, store });
  const record = { startedAt: new Date().toISOString(), retried: [], initMs: 1, runMs: 1 };
  return {
    stateDir,
    sandboxes,
    store,
    inActivity,
    init: (asked = request) => inActivity(() => init({ request: asked, attempt: 1 })),
    run: (placement: Placement, asked = request, rest: { entry?: number; remainingMs?: number } = {}) =>
      inActivity(() => run({ request: asked, attempt: 1, placement, ...rest })),
    pause: ({ sandboxId }: Placement, entry: number) => inActivity(() => pause({ sandboxId, entry })),
    shelve: (placement: Placement, entry: number) =>
      inActivity(() => shelve({ request, attempt: 1, placement, entry })),
    unshelve: (shelf: Shelf) => inActivity(() => init({ request, attempt: 1, shelf })),
    runWith: (other: PoolView, placement: Placement) => {
      const made = makeRunActivities({ handlers, sandboxes, policies: other, parser: fenced, store });
      return inActivity(() => made.run({ request, attempt: 1, placement }));
    },
    evaluate: (placement: Placement, asked = request) => {
      const report = { policyVersions: [4, 4] } as unknown as RunReport;
      return inActivity(() => evaluate({ request: asked, attempt: 1, placement, record, report }));
    },
    conclude: (result: ConcludeInput['result']) =>
      inActivity(() => conclude({ request, attempt: 1, result })),
    copySoFar: (key: AttemptKey) => inActivity(() => copySoFar(key)),
    abort: ({ sandboxId }: Placement) => inActivity(() => abort({ sandboxId, reason: 'stale' })),
    release: (placement: Placement) =>
      inActivity(() => release({ request, attempt: 1, placement, reason: 'failed' })),
  };
}

const failsAs = (type: string, message?: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ApplicationFailure, String(error));
  assert.equal(error.type, type, error.message);
  if (message) assert.match(error.message, message);
  return true;
};

test('init, run and evaluate make a graded, token-exact trajectory, and leave no sandbox', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  assert.equal(placement.runQueue, 'rollouts-run-test-host');
  const report = await s.run(placement);
  assert.equal(report.ended, 'finished');
  assert.equal(report.turns, 3);
  assert.equal((await s.sandboxes.stats()).sandboxes, 0, 'released before it is graded');
  const result = await s.evaluate(placement);
  assert.equal(result.outcome, 'completed');
  assert.deepEqual(result.reward, { total: 1, parts: { right: 1 } });
  assert.ok(result.trajectory);
  const [trajectory] = await readTrajectory(result.trajectory);
  assert.equal(
    decode([...(trajectory?.input_ids ?? []), ...(trajectory?.output_ids ?? [])]),
    `Copy in.txt to out.txt.[assistant]${replies[0]}[tool]0[assistant]${replies[1]}[tool]hello[assistant]done`,
  );
});

test('what an agent has recorded so far is in the store for whoever follows it, until it has ended', async (t) => {
  const asked = gate();
  const goOn = gate();
  let requests = 0;
  const onGenerate = async () => {
    if (++requests !== 2) return;
    asked.open();
    await goOn.passed;
  };
  const s = await stages(t, letterPolicy({ replies, onGenerate }));
  const key = { rolloutId: request.rolloutId, workflowRunId: RUN_ID, attempt: 1 };
  const placement = await s.init();
  const running = s.run(placement);
  await asked.passed;
  assert.deepEqual(await s.store.getSoFar(key), []);
  await s.copySoFar(key);
  const soFar = await s.store.getSoFar(key);
  assert.deepEqual(
    soFar.map(({ kind }) => kind),
    ['begin', 'sampled', 'observed'],
  );
  goOn.open();
  await running;
  assert.deepEqual(soFar, (await s.store.getLedger(key))?.slice(0, 3));
  await s.evaluate(placement);
  assert.deepEqual(await s.store.getSoFar(key), [], 'gone with the record');
  await s.copySoFar(key);
  assert.deepEqual(await s.store.getSoFar(key), [], 'and not made again');
});

test('run asked twice after it had handed over answers from the store', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  const first = await s.run(placement);
  const second = await s.run(placement);
  assert.deepEqual([second.ended, second.turns, second.tokens], [first.ended, first.turns, first.tokens]);
});

test('a sandbox that is gone before its run is lost', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  await s.sandboxes.release(placement.sandboxId);
  await assert.rejects(s.run(placement), failsAs('SandboxLost'));
});

test('a grader gets a fresh sandbox, and it is gone when the grade is there', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  await s.run(placement);
  let seen = '';
  instead = {
    evaluate: async ({ sandbox }) => {
      const first = await sandbox();
      await first.writeFile(`${first.workspace}/mark`, 'x');
      const fresh = await sandbox({ environment: { GRADER: 'yes' } });
      const { stdout } = await fresh.exec({ argv: ['bash', '-c', 'ls -A; echo $GRADER'], timeoutMs: 10_000 });
      seen = stdout.text;
      assert.equal((await s.sandboxes.stats()).graders, 1);
    },
  };
  t.after(() => {
    instead = {};
  });
  assert.equal((await s.evaluate(placement)).outcome, 'completed');
  assert.equal(seen, 'yes\n', 'nothing of the agent’s or of the sandbox before is there');
  assert.equal((await s.sandboxes.stats()).graders, 0);
});

test('an abort ends the run with its tokens and releases the sandbox', async (t) => {
  let sampling!: () => void;
  const reached = new Promise<void>((resolve) => {
    sampling = resolve;
  });
  const policy = letterPolicy({
    replies,
    onGenerate: async (_request, signal) => {
      sampling();
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    },
  });
  const s = await stages(t, policy);
  const placement = await s.init();
  const running = s.run(placement);
  await reached;
  await s.abort(placement);
  const report = await running;
  assert.equal(report.ended, 'aborted');
  const { ms = -1, llmMs = -1, ...cancel } = report.cancel ?? {};
  assert.ok(llmMs >= 0 && ms >= llmMs, 'the whole takes no less than the close of the request');
  assert.deepEqual(cancel, { reason: 'stale', llmAborted: true, turn: 0 });
  assert.ok(
    report.released?.killMs !== null && (report.released?.killMs ?? -1) > 0,
    'killing takes a moment',
  );
  assert.equal(report.tokens, 3, 'tokens received before the abort are kept');
  assert.equal((await s.sandboxes.stats()).sandboxes, 0);
  const result = await s.conclude(ungraded());
  assert.equal(result.trajectory?.sampledTokens, 3);
  assert.deepEqual(result.policyVersions, [4, 4]);
});

/** A rollout that has been paused in the middle of its second turn. */
async function pausedRollout(t: TestContext) {
  let sampling!: () => void;
  const reached = new Promise<void>((resolve) => {
    sampling = resolve;
  });
  let requests = 0;
  const policy = letterPolicy({
    replies,
    onGenerate: async (_request, signal) => {
      if (++requests !== 2 || signal.aborted) return;
      sampling();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
    },
  });
  const s = await stages(t, policy);
  const placement = await s.init();
  const running = s.run(placement, request, { entry: 1 });
  await reached;
  await s.pause(placement, 1);
  const paused = await running;
  assert.deepEqual([paused.ended, paused.turns, paused.processesKilled], ['paused', 1, 0]);
  assert.equal((await s.sandboxes.stats()).sandboxes, 1);
  return { s, placement };
}

test('a pause keeps tokens and sandbox, and the next entry goes on to what an undisturbed run gives', async (t) => {
  const { s, placement } = await pausedRollout(t);
  const report = await s.run(placement, request, { entry: 2, remainingMs: 60_000 });
  assert.deepEqual([report.ended, report.turns], ['finished', 3]);
  const result = await s.evaluate(placement);
  assert.deepEqual(result.reward, { total: 1, parts: { right: 1 } });
  assert.ok(result.trajectory);
  const [trajectory] = await readTrajectory(result.trajectory);
  assert.equal(
    decode([...(trajectory?.input_ids ?? []), ...(trajectory?.output_ids ?? [])]),
    `Copy in.txt to out.txt.[assistant]${replies[0]}[tool]0[assistant]${replies[1]}[tool]hello[assistant]done`,
  );
  assert.deepEqual(
    trajectory?.turns.map(({ turn, finish }) => [turn, finish]),
    [
      [0, 'stop'],
      [1, 'abort'],
      [1, 'stop'],
      [2, 'stop'],
    ],
  );
});

test('a long pause gives the sandbox back, and the attempt goes on in another as if nothing had been', async (t) => {
  const { s, placement } = await pausedRollout(t);
  const shelf = (await s.shelve(placement, 1)) as Shelf;
  assert.equal((await s.sandboxes.stats()).sandboxes, 0);
  assert.deepEqual(await s.shelve(placement, 1), shelf, 'asked twice, it is kept once');
  const other = await s.unshelve(shelf);
  assert.notEqual(other.sandboxId, placement.sandboxId);
  const report = await s.run(other, request, { entry: 2, remainingMs: 60_000 });
  assert.deepEqual([report.ended, report.turns], ['finished', 3]);
  const result = await s.evaluate(other);
  assert.deepEqual(result.reward, { total: 1, parts: { right: 1 } });
  assert.ok(result.trajectory);
  const [trajectory] = await readTrajectory(result.trajectory);
  assert.equal(
    decode([...(trajectory?.input_ids ?? []), ...(trajectory?.output_ids ?? [])]),
    `Copy in.txt to out.txt.[assistant]${replies[0]}[tool]0[assistant]${replies[1]}[tool]` +
      'hello\n[the shell was restarted in /workspace; its variables are gone][assistant]done',
  );
  assert.ok(!existsSync(shelf.file), 'a rollout that has ended keeps no workspace');
});

test('paused before it has begun, a rollout gives its sandbox back as well', async (t) => {
  const s = await stages(t);
  const shelf = (await s.shelve(await s.init(), 0)) as Shelf;
  assert.equal((await s.sandboxes.stats()).sandboxes, 0);
  const other = await s.unshelve(shelf);
  assert.equal((await s.run(other)).ended, 'finished');
  const { reward, trajectory } = await s.evaluate(other);
  assert.deepEqual(reward, { total: 1, parts: { right: 1 } });
  const [record] = await readTrajectory(trajectory as NonNullable<typeof trajectory>);
  assert.doesNotMatch(decode(record?.output_ids ?? []), /restarted/, 'no shell was lost');
});

test('a workspace that cannot be kept whole is not kept: its sandbox stays', async (t) => {
  const { s, placement } = await pausedRollout(t);
  const { sandboxId } = placement;
  const { fence } = await s.sandboxes
    .attach(sandboxId, { workflowRunId: RUN_ID, attempt: 1, entry: 1 })
    .then((at) => at.info);
  const deep = `d=$(printf 'd%.0s' {1..250}); for i in {1..20}; do mkdir $d; cd $d; done`;
  const exec = { fence, argv: ['bash', '-c', deep], timeoutMs: 60_000 };
  assert.equal((await s.sandboxes.exec(sandboxId, exec)).exitCode, 0);
  assert.equal(await s.shelve(placement, 1), null);
  assert.equal((await s.sandboxes.stats()).sandboxes, 1);
  const left = readdirSync(path.join(s.stateDir, 'store'), { recursive: true, encoding: 'utf8' });
  assert.deepEqual(
    left.filter((name) => name.includes('workspace')),
    [],
  );
  assert.equal((await s.run(placement, request, { entry: 2, remainingMs: 60_000 })).ended, 'finished');
});

test('what a lost sandbox had recorded is rescued from its machine', async (t) => {
  const { s, placement } = await pausedRollout(t);
  await s.sandboxes.release(placement.sandboxId); // as when its host died, and another took its place
  await s.release(placement);
  const key = { rolloutId: request.rolloutId, workflowRunId: RUN_ID, attempt: 1 };
  const kinds = (await s.store.getLedger(key))?.map(({ kind }) => kind);
  assert.deepEqual(kinds, ['begin', 'sampled', 'observed', 'sampled']);
});

test('what was kept and is altered, or is of another run, is not gone on with', async (t) => {
  const { s, placement } = await pausedRollout(t);
  const shelf = (await s.shelve(placement, 1)) as Shelf;
  await assert.rejects(s.unshelve({ ...shelf, sha256: '0'.repeat(64) }), failsAs('StoreCorrupt', /checksum/));
  assert.equal((await s.sandboxes.stats()).sandboxes, 0, 'and no sandbox stays');
  rmSync(shelf.file.replace(/1\.workspace\.tar$/, 'ledger.jsonl'));
  await assert.rejects(s.unshelve(shelf), failsAs('SandboxLost', /another run/));
});

test('an entry with no time left ends at the deadline, and what exists is graded', async (t) => {
  const { s, placement } = await pausedRollout(t);
  const report = await s.run(placement, request, { entry: 2, remainingMs: 0 });
  assert.deepEqual([report.ended, report.turns], ['deadline', 1]);
  assert.equal((await s.sandboxes.stats()).sandboxes, 0);
  assert.equal((await s.evaluate(placement)).truncation, 'deadline');
});

test('a newer run of the same rollout supersedes an older one', async (t) => {
  let waits = 0;
  let sampling!: () => void;
  const reached = new Promise<void>((resolve) => {
    sampling = resolve;
  });
  const policy = letterPolicy({
    replies,
    onGenerate: async (_request, signal) => {
      if (waits++ > 0) return;
      sampling();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
    },
  });
  const s = await stages(t, policy);
  const placement = await s.init();
  const older = assert.rejects(s.run(placement), failsAs('FenceRefused'));
  await reached;
  const newer = await s.run(placement);
  await older;
  assert.equal(newer.ended, 'finished');
});

test('while there is no LLM server the run waits, its clock stands, and it can be paused', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  const empty = viewOf([]);
  const open = empty.open.bind(empty);
  const waits = new Promise<void>((resolve) => {
    empty.open = (rolloutId, options) =>
      open(rolloutId, {
        ...options,
        onWaiting: (waiting) => {
          options.onWaiting?.(waiting);
          resolve();
        },
      });
  });
  const running = s.runWith(empty, placement);
  await waits;
  const since = performance.now();
  await new Promise((resolve) => setTimeout(resolve, 300));
  await s.pause(placement, 1);
  const report = await running;
  assert.equal(report.ended, 'paused');
  assert.ok(report.ms < performance.now() - since, 'of the waiting nothing is counted');
  await empty.close();
  assert.equal((await s.run(placement, request, { entry: 2 })).ended, 'finished');
});

test('a task that does not fit its schema, or an unknown handler, is no failure of ours', async (t) => {
  const s = await stages(t);
  const { init } = makeInitActivities({
    handlers: new HandlerRegistry([write as never]),
    sandboxes: s.sandboxes,
    host: loadTools(),
    store: s.store,
  });
  const withTask = (task: Task) => s.inActivity(() => init({ request: { ...request, task }, attempt: 1 }));
  await assert.rejects(withTask({ handler: 'write', id: 'x', data: {} }), failsAs('InvalidTask', /content/));
  await assert.rejects(
    withTask({ handler: 'nope', id: 'x', data: {} }),
    failsAs('UnknownHandler', /known: write/),
  );
});

test('a grader that crashes, or returns no number, has failed; it is never a 0', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  await s.run(placement);
  t.after(() => {
    grade = () => 1;
  });
  grade = () => assert.fail('crash');
  await assert.rejects(s.evaluate(placement), failsAs('GraderFailed', /crash/));
  grade = () => Number.NaN;
  await assert.rejects(s.evaluate(placement), failsAs('GraderFailed'));
  grade = () => 1;
  assert.equal((await s.evaluate(placement)).reward?.total, 1);
  grade = () => 0;
  assert.equal((await s.evaluate(placement)).reward?.total, 1, 'the record that stands is never replaced');
});

const never = () => new Promise<never>(() => {});

test('a part of a handler that never returns, throws or gives nonsense is left and named', async (t) => {
  t.after(() => {
    instead = {};
  });
  const s = await stages(t);
  const quick = {
    ...request,
    deadlines: { ...request.deadlines, initSeconds: 1, runSeconds: 1, evaluateSeconds: 1 },
  };
  instead = { init: never };
  await assert.rejects(s.init(quick), failsAs('StageDeadline', /init did not return within 1 s/));
  assert.equal((await s.sandboxes.stats()).sandboxes, 0, 'its sandbox is released');
  const placement = await (async () => {
    instead = {};
    return s.init();
  })();
  for (const [prompt, type, said] of [
    [never, 'StageDeadline', /no prompt within the run deadline of 1 s/],
    [() => assert.fail('broken'), 'HandlerFailed', /prompt: broken/],
    [() => [], 'HandlerFailed', /prompt/],
    [() => 'text', 'HandlerFailed', /prompt/],
  ] as const) {
    instead = { prompt };
    await assert.rejects(s.run(placement, quick), failsAs(type, said));
  }
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  for (const value of [circular, { n: 1n }, ['a'], { big: 'x'.repeat(300_000) }]) {
    instead = { outcome: () => value };
    await assert.rejects(s.run(placement), failsAs('HandlerFailed', /outcome/));
  }
  instead = {};
  assert.equal((await s.run(placement)).ended, 'finished');
  instead = { evaluate: never };
  await assert.rejects(
    s.evaluate(placement, quick),
    failsAs('StageDeadline', /evaluate did not return within 1 s/),
  );
  instead = {};
  assert.equal((await s.evaluate(placement)).reward?.total, 1);
});

test('a store that takes nothing fails the stage, and release still ends the sandbox', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  writeFileSync(path.join(s.stateDir, 'store'), 'a file where the folder should be');
  await assert.rejects(s.run(placement), failsAs('StoreFailed'));
  const released = await s.release(placement);
  assert.match(released.problem ?? '', /store/);
  assert.equal((await s.sandboxes.stats()).sandboxes, 0);
});

test('release keeps what was recorded, and is idempotent', async (t) => {
  let turns = 0;
  const policy = letterPolicy({
    replies,
    onGenerate: () => {
      if (turns++ === 1) throw new Error('broken');
    },
  });
  const s = await stages(t, policy);
  const placement = await s.init();
  await assert.rejects(s.run(placement), failsAs('Internal'));
  assert.deepEqual((await s.release(placement)).problem, null);
  assert.equal((await s.release(placement)).processesKilled, 0);
  const result = await s.conclude(ungraded());
  assert.equal(result.trajectory?.turns, 1);
  assert.equal(result.reward, null);
});

test('a ledger that was altered in the store is refused', async (t) => {
  const s = await stages(t);
  const placement = await s.init();
  await s.run(placement);
  const store = path.join(s.stateDir, 'store');
  const file = readdirSync(store, { recursive: true, encoding: 'utf8' }).find((name) =>
    name.endsWith('ledger.jsonl'),
  );
  writeFileSync(path.join(store, file as string), '{"sha256":"0"}\n');
  await assert.rejects(s.evaluate(placement), failsAs('StoreCorrupt'));
  rmSync(path.join(store, file as string));
  await assert.rejects(s.evaluate(placement), failsAs('StoreFailed', /no ledger/));
});

/** The part of a terminal record that the workflow gives to conclude. */
function ungraded(): ConcludeInput['result'] {
  const now = new Date().toISOString();
  return {
    ...recordIdentity(request, RUN_ID),
    outcome: 'cancelled',
    reward: null,
    truncation: null,
    cancel: null,
    failure: null,
    retried: [],
    attempt: 1,
    host: null,
    backend: null,
    startedAt: now,
    endedAt: now,
    timings: recordTimings(now, now, { initMs: 0, runMs: 0, evaluateMs: 0 }),
  };
}
