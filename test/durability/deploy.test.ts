import assert from 'node:assert/strict';
import { test } from 'node:test';
import { evalQueue, initQueue } from '../../contracts/queues.ts';
import { gate } from '../workflows/kept.ts';
import { counting, startService, TURNS } from './support.ts';

test('a worker that is told to stop in the middle of init or evaluate costs a try, and no rollout', async (t) => {
  const reached = { init: gate(), evaluate: gate() };
  const never = gate();
  t.after(() => never.open());
  const seen = new Set<string>();
  const holdFirst = async (stage: 'init' | 'evaluate') => {
    if (seen.has(stage)) return;
    seen.add(stage);
    reached[stage].open();
    await never.passed;
  };
  const s = await startService(t, {
    onInit: () => holdFirst('init'),
    onEvaluate: () => holdFirst('evaluate'),
  });
  await s.startRunWorker();
  await s.client.start({ ...counting('deployed'), heartbeatTimeoutSeconds: 60 });
  await reached.init.passed;
  await s.replace(initQueue());
  await reached.evaluate.passed;
  await s.replace(evalQueue());
  const result = await s.client.result('deployed');
  assert.equal(result.outcome, 'completed');
  assert.deepEqual(result.reward, { total: TURNS - 1, parts: { calls: TURNS - 1 } });
  assert.deepEqual(
    result.retried.map(({ type, stage }) => [type, stage]),
    [
      ['WorkerLost', 'init'],
      ['WorkerLost', 'evaluate'],
    ],
  );
});
