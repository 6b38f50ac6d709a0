import assert from 'node:assert/strict';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { makeInitActivities } from '../../activities/init.ts';
import { loadTools } from '../../config/tools.ts';
import type { Task } from '../../contracts/task.ts';
import { failsAs, request, script, stages, write } from './write-stages.ts';

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
    script.grade = () => 1;
  });
  script.grade = () => assert.fail('crash');
  await assert.rejects(s.evaluate(placement), failsAs('GraderFailed', /crash/));
  script.grade = () => Number.NaN;
  await assert.rejects(s.evaluate(placement), failsAs('GraderFailed'));
  script.grade = () => 1;
  assert.equal((await s.evaluate(placement)).reward?.total, 1);
  script.grade = () => 0;
  assert.equal((await s.evaluate(placement)).reward?.total, 1, 'the record that stands is never replaced');
});

const never = () => new Promise<never>(() => {});

test('a part of a handler that never returns, throws or gives nonsense is left and named', async (t) => {
  t.after(() => {
    script.instead = {};
  });
  const s = await stages(t);
  const quick = {
    ...request,
    deadlines: { ...request.deadlines, initSeconds: 1, runSeconds: 1, evaluateSeconds: 1 },
  };
  script.instead = { init: never };
  await assert.rejects(s.init(quick), failsAs('StageDeadline', /init did not return within 1 s/));
  assert.equal((await s.sandboxes.stats()).sandboxes, 0, 'its sandbox is released');
  const placement = await (async () => {
    script.instead = {};
    return s.init();
  })();
  for (const [prompt, type, said] of [
    [never, 'StageDeadline', /no prompt within the run deadline of 1 s/],
    [() => assert.fail('broken'), 'HandlerFailed', /prompt: broken/],
    [() => [], 'HandlerFailed', /prompt/],
    [() => 'text', 'HandlerFailed', /prompt/],
  ] as const) {
    script.instead = { prompt };
    await assert.rejects(s.run(placement, quick), failsAs(type, said));
  }
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  for (const value of [circular, { n: 1n }, ['a'], { big: 'x'.repeat(300_000) }]) {
    script.instead = { outcome: () => value };
    await assert.rejects(s.run(placement), failsAs('HandlerFailed', /outcome/));
  }
  script.instead = {};
  assert.equal((await s.run(placement)).ended, 'finished');
  script.instead = { evaluate: never };
  await assert.rejects(
    s.evaluate(placement, quick),
    failsAs('StageDeadline', /evaluate did not return within 1 s/),
  );
  script.instead = {};
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
