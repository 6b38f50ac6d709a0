import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { assembleTrajectory, checksumOf } from '../../activities/trajectory/assemble.ts';
import { ledgerProblems, proveLine, runsToScore } from '../../activities/trajectory/prove.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { ledgers, request } from './records.ts';

const context = { request, workflowRunId: 'run', attempt: 1, reward: null, metadata: {} };
const withTurns = ledgers.filter((records) => records.length > 3);

/** A trajectory with something changed and its checksum made to fit again. */
function altered(trajectory: Trajectory, change: (copy: Trajectory) => void): string {
  const copy = structuredClone(trajectory);
  change(copy);
  copy.checksum = checksumOf(copy);
  return JSON.stringify(copy);
}

test('what was assembled from a ledger is proven, line and ledger', () => {
  fc.assert(
    fc.property(ledgers, (records) => {
      const line = JSON.stringify(assembleTrajectory(records, context));
      const { trajectory, problems } = proveLine(line);
      assert.deepEqual(problems, []);
      assert.ok(trajectory);
      assert.deepEqual(ledgerProblems(trajectory, records), []);
    }),
  );
});

test('a line that was changed is found by its checksum', () => {
  fc.assert(
    fc.property(withTurns, fc.nat(), (records, at) => {
      const line = JSON.stringify(assembleTrajectory(records, context));
      // Before the fractions, whose last digits may stand for the same number.
      const digits = [...line.slice(0, line.indexOf('"logprobs"')).matchAll(/\d/g)];
      const { index } = digits[at % digits.length] as RegExpMatchArray & { index: number };
      const other = line[index] === '1' ? '2' : '1';
      const { problems } = proveLine(line.slice(0, index) + other + line.slice(index + 1));
      assert.notDeepEqual(problems, []);
    }),
  );
  assert.match(proveLine('{"a":').problems[0] ?? '', /no JSON/);
  assert.match(proveLine('{}').problems.join(), /rollout_id/);
});

test('a line that contradicts itself is found although its checksum fits', () => {
  const [records = []] = fc.sample(withTurns, 1);
  const trajectory = assembleTrajectory(records, context);
  const observed = trajectory.loss_mask.indexOf(0);
  const sampled = trajectory.loss_mask.indexOf(1);
  const cases: [RegExp, (copy: Trajectory) => void][] = [
    [/mask 0, but log-probability -1/, (copy) => copy.logprobs.fill(-1, observed, observed + 1)],
    [/mask 1, but log-probability 0.5/, (copy) => copy.logprobs.fill(0.5, sampled, sampled + 1)],
    [/mask 1.* version -1/, (copy) => copy.policy_versions.fill(-1, sampled, sampled + 1)],
    [/sampled tokens with mask 0/, (copy) => copy.loss_mask.fill(0, sampled, sampled + 1)],
    [/observed tokens with mask 1/, (copy) => copy.loss_mask.fill(1, observed, observed + 1)],
    [
      /says version 99, its oldest/,
      (copy) => ((copy.turns[0] as Trajectory['turns'][0]).policy_version = 99),
    ],
    [/where 0 is due/, (copy) => (copy.turns[0] as Trajectory['turns'][0]).sampled[0]++],
    [/turns end at \d+ of \d+/, (copy) => copy.turns.pop()],
    [/turn 0 calls itself 5/, (copy) => ((copy.turns[0] as Trajectory['turns'][0]).turn = 5)],
    [/says truncated/, (copy) => (copy.truncated = copy.truncated ? null : 'tokens')],
    [/has \d+ entries for/, (copy) => copy.logprobs.pop()],
  ];
  for (const [words, change] of cases) {
    assert.match(proveLine(altered(trajectory, change)).problems.join('\n'), words);
  }
});

test('a trajectory that differs from its ledger is found although it agrees with itself', () => {
  fc.assert(
    fc.property(withTurns, (records) => {
      const trajectory = assembleTrajectory(records, context);
      const line = altered(trajectory, (copy) => copy.output_ids.splice(0, 1, 49_999));
      const proof = proveLine(line);
      assert.deepEqual(proof.problems, []);
      assert.deepEqual(ledgerProblems(proof.trajectory as Trajectory, records), [
        'output_ids differ from what its ledger recorded',
      ]);
      const told = altered(trajectory, (copy) => {
        (copy.turns[0] as Trajectory['turns'][0]).server = 'http://elsewhere';
        (copy.messages[0] as Trajectory['messages'][0]).content += '!';
        copy.model.name += '!';
      });
      assert.deepEqual(
        ledgerProblems(proveLine(told).trajectory as Trajectory, records),
        ['turns', 'messages', 'model'].map((field) => `${field} differ from what its ledger recorded`),
      );
      const sampled = records.findLast((record) => record.kind === 'sampled');
      assert.ok(sampled);
      sampled.promptLength++;
      assert.match(ledgerProblems(trajectory, records)[0] ?? '', /was sampled after/);
    }),
  );
});

test('a turn that was broken off and went on is one turn', () => {
  const splittable = withTurns.filter(([, first]) => first?.kind === 'sampled' && first.ids.length > 1);
  const [records = []] = fc.sample(splittable, 1);
  const trajectory = assembleTrajectory(records, context);
  const parts = altered(trajectory, ({ turns, policy_versions }) => {
    const [first] = turns as [Trajectory['turns'][0]];
    const [start] = first.sampled;
    const part = { ...first, finish: 'abort' as const, observed: [start, start] as [number, number] };
    turns.splice(0, 1, { ...part, sampled: [start, start + 1], observed: [start + 1, start + 1] }, first);
    first.sampled = [start + 1, first.sampled[1]];
    first.policy_version = policy_versions[start + 1] as number;
  });
  assert.deepEqual(proveLine(parts).problems, []);
});

test('tokens to score are sampled ones, spread over the whole, in runs', () => {
  fc.assert(
    fc.property(withTurns, fc.integer({ min: 1, max: 80 }), (records, most) => {
      const trajectory = assembleTrajectory(records, context);
      const sampled = trajectory.loss_mask.flatMap((mask, at) => (mask === 1 ? [at] : []));
      const runs = runsToScore(trajectory, most);
      const chosen = runs.flatMap(([start, end]) => Array.from({ length: end - start }, (_, n) => start + n));
      assert.equal(chosen.length, Math.min(most, sampled.length));
      assert.ok(chosen.every((at) => sampled.includes(at)));
      assert.deepEqual(
        chosen,
        [...new Set(chosen)].sort((a, b) => a - b),
      );
      if (most >= sampled.length) assert.deepEqual(chosen, sampled);
    }),
  );
});
