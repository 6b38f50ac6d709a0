import assert from 'node:assert/strict';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import type { Shelf } from '../../contracts/stages.ts';
import { decode, letterPolicy } from '../support/letters.ts';
import { viewOf } from '../support/pool.ts';
import { failsAs, RUN_ID, replies, request, stages } from './write-stages.ts';

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
