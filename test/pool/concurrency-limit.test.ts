import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ConcurrencyLimit } from '../../activities/llm/balance/concurrency-limit.ts';

test('of requests that are refused together the first halves what is sent; each full round adds one', () => {
  const limit = new ConcurrencyLimit();
  const numbers = Array.from({ length: 16 }, () => limit.begin());
  for (const number of numbers) limit.congested(number);
  assert.equal(limit.most, 8);
  assert.equal(limit.hasRoom, false);
  for (const _ of numbers) limit.end();
  for (let round = 0; round < 3; round++) {
    const open = Math.floor(limit.most);
    for (let n = 0; n < open; n++) limit.begin();
    for (let n = 0; n < open; n++) {
      limit.served();
      limit.end();
      limit.begin();
    }
    for (let n = 0; n < open; n++) limit.end();
  }
  assert.equal(Math.floor(limit.most), 10, 'a little less than one a round, since the limit itself grows');
});

test('a server of any size is found: it is kept busy and refuses little', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 64 }), (size) => {
      const limit = new ConcurrencyLimit();
      let refused = 0;
      let served = 0;
      // Rounds in which as much is sent as may be of what waits.
      for (let round = 0; round < 400; round++) {
        const numbers: number[] = [];
        while (limit.hasRoom && numbers.length < 100) numbers.push(limit.begin());
        for (const [at, number] of numbers.entries()) {
          if (at < size) limit.served();
          else limit.congested(number);
          if (round >= 100) at < size ? served++ : refused++;
        }
        for (const _ of numbers) limit.end();
      }
      assert.ok(served >= 0.6 * 300 * size, `${served} of ${300 * size} served`);
      assert.ok(refused <= 0.6 * served, `${refused} refused, ${served} served`);
    }),
  );
});

test('it never falls below one, and what never came near it does not raise it', () => {
  const limit = new ConcurrencyLimit();
  for (let n = 0; n < 20; n++) {
    limit.congested(limit.begin());
    limit.end();
  }
  assert.equal(limit.most, 1);
  assert.equal(limit.hasRoom, true);
  const wide = new ConcurrencyLimit();
  for (let n = 0; n < 40; n++) wide.begin();
  wide.congested();
  for (let n = 0; n < 39; n++) wide.end();
  wide.served();
  assert.equal(wide.most, 20);
});
