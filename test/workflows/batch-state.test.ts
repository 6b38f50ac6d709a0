import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { BatchInput, BatchState } from '../../contracts/batch.ts';
import type { GroupEnded, RolloutEnded, Verdict } from '../../contracts/group.ts';
import { BatchRules, GroupRules } from '../../contracts/group-rules.ts';
import * as batch from '../../workflows/batch-state.ts';
import { judged, totalsOf, verdictOf } from '../../workflows/group-judge.ts';

const AT = '2026-01-01T00:00:00.000Z';
const inputOf = (
  rules: object,
  sizes: readonly number[] = [1000],
  weights: readonly number[] = sizes.map(() => 1),
) =>
  ({
    batchId: 'b',
    sources: sizes.map((tasks, index) => ({
      set: `s${index}`,
      tasks,
      weight: weights[index],
      domain: `d${index}`,
    })),
    rules: BatchRules.parse(rules),
    group: GroupRules.parse({}),
  }) as unknown as BatchInput;
const beginning = { ended: 0, version: 5, floor: 0, carried: [], at: AT };
const ending = (groupId: string, verdict: Verdict, oldest = 5): GroupEnded => ({
  ...{ groupId, verdict, versions: [oldest, oldest] },
  ...{ rewardMean: 0.5, tokens: 80, samples: 8 },
});

/** Begins groups as the workflow does, until nothing is missing or nothing is left. */
function refilled(before: BatchState, input: BatchInput): BatchState {
  let state = before;
  for (;;) {
    if (batch.shortfall(state, input.rules) === 0) return state;
    const drawn = batch.draw(state, input.sources, input.rules);
    if (!drawn) return state;
    const { source, row, round } = drawn;
    state = batch.withGroup(drawn.state, { groupId: `${source}.${row}.${round}`, source, row }, AT);
  }
}

const verdicts = fc.constantFrom<Verdict>(
  'useful',
  'allZero',
  'allOne',
  'allEqual',
  'incomplete',
  'cancelled',
);

test('property: whatever the order of the ends, the batch is the first useful groups in the order of the starts', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 12 }),
      fc.double({ min: 1, max: 4, noNaN: true }),
      fc.array(verdicts, { minLength: 40, maxLength: 80 }),
      fc.infiniteStream(fc.nat(1_000)),
      (groups, oversampling, outcomes, picks) => {
        const input = inputOf({ groups, oversampling }, [outcomes.length]);
        let state = refilled(batch.begun(input, beginning), input);
        const open = () => state.groups.filter(({ verdict }) => verdict === 'open');
        while (!batch.isFull(state) && open().length > 0) {
          const pick = (picks.next().value as number) % open().length;
          const { groupId, row } = open()[pick] as { groupId: string; row: number };
          state = batch.withEnd(state, ending(groupId, outcomes[row] as Verdict), input.rules, AT);
          if (!batch.isFull(state)) state = refilled(state, input);
        }
        const useful = state.groups
          .filter(({ row }) => outcomes[row] === 'useful')
          .map(({ groupId }) => groupId);
        assert.deepEqual(state.admitted, useful.slice(0, groups));
        const counts = batch.countsOf(state, input.sources);
        const dropped = Object.values(counts.dropped).reduce((sum, count) => sum + count, 0);
        assert.equal(counts.admitted + dropped + batch.surplusOf(state).length, state.groups.length);
        assert.deepEqual(
          state.events.map(({ number }) => number),
          state.events.map((_, index) => index + 1),
        );
        assert.equal(new Set(state.groups.map(({ groupId }) => groupId)).size, state.groups.length);
      },
    ),
  );
});

test('property: a group that ends twice, or is not known, changes nothing', () => {
  fc.assert(
    fc.property(verdicts, verdicts, (first, second) => {
      const input = inputOf({ groups: 2 });
      const begun = refilled(batch.begun(input, beginning), input);
      const once = batch.withEnd(begun, ending('0.0.0', first), input.rules, AT);
      assert.equal(batch.withEnd(once, ending('0.0.0', second), input.rules, AT), once);
      assert.equal(batch.withEnd(once, ending('nobody', second), input.rules, AT), once);
    }),
  );
});

test('property: sources are drawn by their weights, each task as often as it may be and no more', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.record({ tasks: fc.integer({ min: 1, max: 30 }), weight: fc.integer({ min: 1, max: 9 }) }),
        {
          minLength: 1,
          maxLength: 5,
        },
      ),
      fc.integer({ min: 1, max: 3 }),
      (sources, attemptsPerTask) => {
        const input = inputOf(
          { groups: 1000, attemptsPerTask },
          sources.map(({ tasks }) => tasks),
          sources.map(({ weight }) => weight),
        );
        let state = batch.begun(input, beginning);
        const drawn = sources.map(() => 0);
        const times = new Map<string, number>();
        let allLeft = true;
        for (let count = 1; ; count++) {
          const next = batch.draw(state, input.sources, input.rules);
          if (!next) break;
          state = next.state;
          drawn[next.source] = (drawn[next.source] as number) + 1;
          const key = `${next.source}.${next.row}`;
          times.set(key, (times.get(key) ?? 0) + 1);
          const total = sources.reduce((sum, { weight }) => sum + weight, 0);
          allLeft &&= sources.every(({ tasks }, index) => (drawn[index] as number) < tasks * attemptsPerTask);
          if (!allLeft) continue;
          for (const [index, { weight }] of sources.entries()) {
            assert.ok(Math.abs((drawn[index] as number) - (count * weight) / total) <= sources.length);
          }
        }
        assert.equal(
          times.size,
          sources.reduce((sum, { tasks }) => sum + tasks, 0),
        );
        assert.ok([...times.values()].every((count) => count === attemptsPerTask));
      },
    ),
  );
});

test('a batch goes on in its source where another has been', () => {
  const input = inputOf({ groups: 2, oversampling: 1 }, [3]);
  const rows = (given: BatchInput) =>
    refilled(batch.begun(given, beginning), given).groups.map(({ row }) => row);
  assert.deepEqual(rows(input), [0, 1]);
  const state = refilled(batch.begun(input, beginning), input);
  const { drawn = [] } = batch.resultOf(input, state, 'deadline', AT);
  const [source] = input.sources;
  const next = { ...input, sources: [{ ...source, skip: drawn[0] }] } as BatchInput;
  assert.deepEqual(rows(next), [2, 0]);
});

test('equal rewards are kept where they are wanted, and tokens that are too old are not', () => {
  const input = inputOf({ groups: 3, dropEqual: false, staleness: 1 });
  let state = refilled(batch.begun(input, beginning), input);
  const ends: GroupEnded[] = [
    ending('0.0.0', 'allOne'),
    ending('0.1.0', 'useful', 3),
    ending('0.2.0', 'useful', 4),
  ];
  for (const end of ends) state = batch.withEnd(state, end, input.rules, AT);
  assert.deepEqual(state.admitted, ['0.0.0', '0.2.0']);
  assert.deepEqual(batch.countsOf(state, input.sources).dropped, { stale: 1 });
});

test('a floor that is raised while a batch runs drops what is older and has not been decided on', () => {
  const input = inputOf({ groups: 3, oversampling: 2 }, [6]);
  let state = refilled(batch.begun(input, beginning), input);
  for (const end of [
    ending('0.0.0', 'useful', 3),
    ending('0.2.0', 'useful', 3),
    ending('0.3.0', 'useful', 4),
  ])
    state = batch.withEnd(state, end, input.rules, AT);
  assert.deepEqual(state.admitted, ['0.0.0'], 'group 1 is open and holds up what follows');
  state = batch.withFloor(state, 4, AT);
  assert.equal(batch.withFloor(state, 2, AT), state, 'it is only raised');
  for (const end of [ending('0.1.0', 'useful', 3), ending('0.4.0', 'useful', 5)])
    state = batch.withEnd(state, end, input.rules, AT);
  assert.deepEqual(state.admitted, ['0.0.0', '0.3.0', '0.4.0']);
  assert.deepEqual(batch.countsOf(state, input.sources).dropped, { stale: 2 });
});

test('a task is drawn again if its group was of no use, and what is below the floor is of none', () => {
  const input = inputOf({ groups: 3, attemptsPerTask: 2, oversampling: 2 }, [3]);
  let state = refilled(batch.begun(input, { ...beginning, floor: 4 }), input);
  assert.equal(state.groups.length, 3, 'each is open: none is drawn twice');
  for (const end of [ending('0.0.0', 'allOne'), ending('0.1.0', 'useful'), ending('0.2.0', 'useful', 3)]) {
    state = batch.withEnd(state, end, input.rules, AT);
  }
  assert.deepEqual(batch.countsOf(state, input.sources).dropped, { allOne: 1, stale: 1 });
  state = batch.begun(input, beginning);
  state = refilled(state, { ...input, rules: { ...input.rules, openGroups: 1 } });
  state = batch.withEnd(state, ending('0.0.0', 'allOne'), input.rules, AT);
  const ids = refilled(state, input).groups.map(({ groupId }) => groupId);
  assert.deepEqual(ids, ['0.0.0', '0.1.0', '0.2.0', '0.0.1']);
});

test('the size follows what has ended of late, up to a bound', () => {
  const rules = BatchRules.parse({ groups: 16, adaptive: { most: 100 } });
  assert.equal(batch.adaptedSize(rules, 0), 16);
  assert.equal(batch.adaptedSize(rules, 1), 16);
  assert.equal(batch.adaptedSize(rules, 10), 52);
  assert.equal(batch.adaptedSize(rules, 10_000), 100);
  assert.equal(batch.adaptedSize(BatchRules.parse({ groups: 16 }), 10_000), 16);
});

const sample = (given: Partial<RolloutEnded>): RolloutEnded => ({
  ...{ rolloutId: 'r', outcome: 'completed', reward: 1, truncated: null, cancelled: null, failure: null },
  ...{ versions: [3, 3], tokens: 100 },
  ...given,
});

test('overlong samples are masked, dropped, kept, or cost what they are too long', () => {
  const long = sample({ outcome: 'truncated', truncated: 'tokens', tokens: 900 });
  assert.deepEqual(
    ['mask', 'keep', 'drop'].map((mode) => judged(long, { mode } as never).train),
    [false, true, false],
  );
  const penalty = { mode: 'penalty', maxTokens: 1000, cache: 200 } as const;
  const shaped = (tokens: number) => judged(sample({ tokens }), penalty).shaped;
  assert.deepEqual([800, 900, 1000, 5000].map(shaped), [1, 0.5, 0, 0]);
  assert.deepEqual(judged(sample({ reward: null }), penalty), {
    ...sample({ reward: null }),
    shaped: null,
    train: false,
  });
  const rules = GroupRules.parse({ samples: 2, overlong: { mode: 'drop' } });
  const samples = [sample({ reward: 0 }), long].map((one) => judged(one, rules.overlong));
  assert.equal(verdictOf(samples, rules, false), 'incomplete');
  assert.equal(verdictOf(samples, { ...rules, minSamples: 1 }, false), 'allZero');
  assert.deepEqual(totalsOf(samples, rules), { rewardMean: 0, counted: 1, tokens: 100, versions: [3, 3] });
});

test('a group is of use if its rewards differ by more than arithmetic', () => {
  const verdict = (rewards: (number | null)[], given: object = {}, versions?: [number, number]) => {
    const rules = GroupRules.parse({ samples: rewards.length, ...given });
    const samples = rewards.map((reward, index) =>
      judged(sample({ reward, ...(versions && index === 0 ? { versions } : {}) }), rules.overlong),
    );
    return verdictOf(samples, rules, false);
  };
  assert.equal(verdict([0, 1]), 'useful');
  assert.equal(verdict([0, 0]), 'allZero');
  assert.equal(verdict([1, 1]), 'allOne');
  assert.equal(verdict([0.1 + 0.2, 0.3]), 'allEqual');
  assert.equal(verdict([0, null]), 'incomplete');
  assert.equal(verdict([0, null, 1], { minSamples: 2 }), 'useful');
  assert.equal(verdict([0, 1], { uniformVersion: true }, [3, 4]), 'mixedVersions');
  assert.equal(verdict([0, 1], {}, [3, 4]), 'useful');
});
