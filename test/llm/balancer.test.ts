import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { Balancer } from '../../activities/llm/balance/balancer.ts';
import { ExpectedTurn } from '../../activities/llm/balance/expected-turn.ts';
import { MinHeap } from '../../activities/llm/balance/min-heap.ts';
import { heap, inTurn, manyRollouts, simulate } from '../../bench/balance.ts';

test('a heap gives the lowest key that suits, whatever was put in, changed and taken out', () => {
  const step = fc.record({ item: fc.nat(20), key: fc.integer(), out: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), fc.nat(3), (steps, remainder) => {
      const heap = new MinHeap<number>();
      const model = new Map<number, number>();
      for (const { item, key, out } of steps) {
        if (out) {
          heap.delete(item);
          model.delete(item);
        } else {
          heap.set(item, key);
          model.set(item, key);
        }
        assert.equal(heap.size, model.size);
        for (const suits of [() => true, (one: number) => one % 4 === remainder]) {
          const first = heap.first(suits);
          const keys = [...model].filter(([one]) => suits(one)).map(([, value]) => value);
          if (first === undefined) assert.equal(keys.length, 0);
          else assert.equal(model.get(first), Math.min(...keys));
        }
      }
    }),
  );
});

/** What may happen to a pool of three. */
const happening = fc.oneof(
  fc.record({ kind: fc.constant('choose' as const), rollout: fc.nat(8), load: fc.nat(1000) }),
  fc.record({ kind: fc.constant('lay' as const), rollout: fc.nat(8), load: fc.nat(1000) }),
  fc.record({ kind: fc.constant('release' as const), rollout: fc.nat(8) }),
  fc.record({ kind: fc.constant('fail' as const), member: fc.nat(2) }),
  fc.record({ kind: fc.constant('recover' as const), member: fc.nat(2) }),
  fc.record({ kind: fc.constant('remove' as const), member: fc.nat(2) }),
  fc.record({ kind: fc.constant('add' as const), member: fc.nat(2) }),
);

test('a rollout keeps its member while that is healthy, and else gets the least loaded that is', () => {
  fc.assert(
    fc.property(fc.array(happening, { maxLength: 200 }), (happenings) => {
      const balancer = new Balancer<number>({ firstMs: 10, mostMs: 40 });
      const placed = new Map<number, { member: number; load: number }>();
      const members = new Set([0, 1, 2]);
      const healthy = new Set([0, 1, 2]);
      for (const member of members) balancer.add(member);
      const loadOf = (member: number) =>
        [...placed.values()].reduce((sum, place) => sum + (place.member === member ? place.load : 0), 0);
      let now = 0;
      for (const happened of happenings) {
        now++;
        if (happened.kind === 'choose') {
          const { rollout, load } = happened;
          const before = placed.get(rollout);
          const loads = new Map([...healthy].map((member) => [member, loadOf(member)]));
          const member = balancer.choose(String(rollout), load);
          if (before && healthy.has(before.member)) {
            assert.equal(member, before.member);
          } else if (healthy.size === 0) {
            assert.equal(member, undefined);
          } else {
            assert.ok(member !== undefined && healthy.has(member));
            assert.equal(loads.get(member), Math.min(...loads.values()));
            placed.set(rollout, { member, load });
          }
        } else if (happened.kind === 'lay') {
          balancer.lay(String(happened.rollout), happened.load);
          const place = placed.get(happened.rollout);
          if (place) place.load = happened.load;
        } else if (happened.kind === 'release') {
          balancer.release(String(happened.rollout));
          placed.delete(happened.rollout);
        } else if (happened.kind === 'fail') {
          balancer.fail(happened.member, now);
          healthy.delete(happened.member);
        } else if (happened.kind === 'recover') {
          balancer.recover(happened.member);
          if (members.has(happened.member)) healthy.add(happened.member);
        } else if (happened.kind === 'remove') {
          balancer.remove(happened.member);
          members.delete(happened.member);
          healthy.delete(happened.member);
          for (const [rollout, { member }] of placed) if (member === happened.member) placed.delete(rollout);
        } else if (!members.has(happened.member)) {
          balancer.add(happened.member);
          members.add(happened.member);
          healthy.add(happened.member);
        }
        for (const member of members) {
          assert.equal(balancer.loadOf(member), loadOf(member));
          assert.equal(balancer.isHealthy(member), healthy.has(member));
        }
      }
    }),
  );
});

test('a member that fails is left alone for twice as long each time, and asked then', () => {
  const balancer = new Balancer<string>({ firstMs: 10, mostMs: 40 });
  balancer.add('a');
  let now = 0;
  const away: number[] = [];
  for (let failures = 0; failures < 5; failures++) {
    balancer.fail('a', now);
    const due = balancer.nextDue() as number;
    away.push(due - now);
    assert.deepEqual(balancer.due(due - 1), []);
    assert.deepEqual(balancer.due(due), ['a']);
    balancer.fail('a', now); // another request that was under way there counts for nothing
    assert.equal(balancer.nextDue(), due);
    now = due;
  }
  assert.deepEqual(away, [10, 20, 40, 40, 40]);
  balancer.recover('a');
  assert.equal(balancer.nextDue(), undefined);
  balancer.fail('a', now);
  assert.equal(balancer.nextDue(), now + 10);
});

test('a member that joins takes the next rollouts', () => {
  const balancer = new Balancer<string>();
  balancer.add('old');
  for (let rollout = 0; rollout < 5; rollout++) balancer.choose(`${rollout}`, 100);
  balancer.add('new');
  const chosen = Array.from({ length: 6 }, (_, n) => balancer.choose(`later ${n}`, 100));
  assert.deepEqual(chosen.slice(0, 5), ['new', 'new', 'new', 'new', 'new']);
});

test('tokens that come take load off, and a rollout that runs its tools keeps a part', () => {
  const expected = new ExpectedTurn();
  for (let turn = 0; turn < 1_000; turn++) expected.saw(100);
  assert.ok(Math.abs(expected.sampling(0) - 100) < 1);
  assert.ok(expected.sampling(30) < expected.sampling(10));
  assert.equal(expected.sampling(1_000), expected.idle);
});

test('a thousand rollouts of mixed length are spread within 10 %, and wait less than in turn', () => {
  for (const seed of [1, 2, 3]) {
    const rollouts = manyRollouts(1_000, seed);
    const { imbalance_pct, p99_ms } = simulate(rollouts, heap());
    assert.ok(imbalance_pct <= 10, `${imbalance_pct} %`);
    assert.ok(p99_ms * 2 < simulate(rollouts, inTurn()).p99_ms);
  }
});
