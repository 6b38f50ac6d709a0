import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal, duration } from '../../gateway/page/format.js';

test('values are written as people read them', () => {
  const decimals = [0.5, 1, -1.2672, 120.4, 100, -0.0001, null].map((value) => decimal(value));
  assert.deepEqual(decimals, ['0.5', '1', '−1.267', '120.4', '100', '0', '–']);
  assert.deepEqual([decimal(100, 0), decimal(119.6, 0)], ['100', '120']);
  const durations = [5, 1500, 119_700, 3_599_800, null].map(duration);
  assert.deepEqual(durations, ['5 ms', '1.50 s', '2 min 0 s', '1 h 0 min', '–']);
});
