import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { decode, letterPolicy } from '../support/letters.ts';
import { gate } from '../workflows/kept.ts';
import { failsAs, RUN_ID, replies, request, script, stages, ungraded } from './write-stages.ts';

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
  script.instead = {
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
    script.instead = {};
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
