import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Lease } from '../../activities/llm/balance/lease.ts';
import { poolState } from '../support/pool.ts';

const LEASE_SECONDS = 1;
const LEASE_MS = LEASE_SECONDS * 1000;
const FIRST = 1;

const state = (epoch: number, known = true) =>
  poolState([], { epoch, leaseSeconds: LEASE_SECONDS, workers: known ? ['test'] : [] });

test('whatever a worker asked and when it heard, it never acts on a state a lease’s time after its change', () => {
  const question = fc.record({
    askedAt: fc.integer({ min: 0, max: 5_000 }),
    /** Until the pool answers, and until that is heard. */
    answeredAfter: fc.integer({ min: 0, max: 3_000 }),
    heardAfter: fc.integer({ min: 0, max: 3_000 }),
  });
  const changes = fc.uniqueArray(fc.integer({ min: 1, max: 8_000 }), { maxLength: 5 });
  fc.assert(
    fc.property(fc.array(question, { maxLength: 12 }), changes, (questions, changedAt) => {
      changedAt.sort((a, b) => a - b);
      const epochAt = (time: number) => FIRST + changedAt.filter((at) => at <= time).length;
      const heard = questions
        .map(({ askedAt, answeredAfter, heardAfter }) => ({
          askedAt,
          epoch: epochAt(askedAt + answeredAfter),
          at: askedAt + answeredAfter + heardAfter,
        }))
        .sort((a, b) => a.at - b.at);
      const lease = new Lease('test');
      let next = 0;
      for (let now = 0; now < 12_000; now += 50) {
        for (; (heard[next]?.at ?? Infinity) <= now; next++) {
          const { epoch, askedAt } = heard[next] as (typeof heard)[0];
          lease.take(state(epoch), askedAt, now);
        }
        if (!lease.isLive(now)) continue;
        // Changes after which the pool has waited long enough, whatever this worker did.
        const done = FIRST + changedAt.filter((at) => at + LEASE_MS <= now).length;
        assert.ok(
          (lease.state?.epoch ?? 0) >= done,
          `at ${now} acts on ${lease.state?.epoch}, ${done} is done`,
        );
      }
    }),
  );
});

test('an older answer that comes late changes nothing, and one from where it is unknown is no lease', () => {
  const lease = new Lease('test');
  assert.equal(lease.isLive(0), false);
  assert.equal(lease.take(state(2), 100, 150), true);
  assert.equal(lease.isLive(1_099), true);
  assert.equal(lease.isLive(1_100), false);
  assert.equal(lease.take(state(1), 900, 950), false);
  assert.deepEqual([lease.state?.epoch, lease.until], [2, 1_100]);
  assert.equal(lease.take(state(3, false), 960, 970), true);
  assert.equal(lease.known, false);
  assert.equal(lease.isLive(971), false);
});

test('what began under a lease that ran out meanwhile is not held by the next one', () => {
  const lease = new Lease('test');
  lease.take(state(1), 0, 0);
  assert.equal(lease.heldSince(500, 900), true);
  lease.take(state(1), 800, 850);
  assert.equal(lease.heldSince(500, 1_700), true, 'renewed in time');
  lease.take(state(1), 2_000, 2_050);
  assert.equal(lease.heldSince(500, 2_060), false, 'it stood still from 1800 to 2050');
  assert.equal(lease.heldSince(2_050, 2_060), true);
  lease.giveUp();
  assert.equal(lease.isLive(2_060), false);
});
