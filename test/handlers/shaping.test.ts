import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shapedByFormat } from '../../activities/grading/shaping.ts';
import { RolloutRequest } from '../../contracts/request.ts';

test('calls that could not be read cost what was asked for, and nothing if nothing was', () => {
  const call = (status: 'ok' | 'unclosed') => ({ status });
  const turn = (...statuses: ('ok' | 'unclosed')[]) =>
    ({ kind: 'sampled', calls: statuses.map(call) }) as never;
  const records = [turn('ok', 'unclosed'), turn('ok'), turn('ok')];
  const reward = { total: 1, parts: { correct: 1 } };
  assert.equal(shapedByFormat(reward, records, undefined), reward);
  assert.deepEqual(shapedByFormat(reward, records, 0.4), {
    total: 0.9,
    parts: { correct: 1, graded: 1, format: -0.1 },
  });
  assert.deepEqual(shapedByFormat(reward, [turn('ok')], 0.4).total, 1);
  assert.deepEqual(shapedByFormat(reward, [turn()], 0.4).total, 1);
  const task = { handler: 'math', id: 'a', data: {} };
  assert.equal(RolloutRequest.parse({ rolloutId: 'a', task }).formatPenalty, undefined);
  assert.throws(() => RolloutRequest.parse({ rolloutId: 'a', task, formatPenalty: -1 }), /formatPenalty/);
});
