import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { evalCommand } from '../../client/commands/eval.ts';
import { compare, type Measures, measure } from '../../client/eval/measures.ts';
import type { Sample } from '../../client/eval/samples.ts';
import { meanShare, pairedP, passAtK } from '../../client/eval/statistics.ts';
import { loadConfig } from '../../config/load.ts';

const sample = (taskId: string, reward: number | null, more: Partial<Sample> = {}): Sample => ({
  ...{ taskId, reward, domain: '-', truncated: false, toolCalls: 1, tokens: 10, seconds: 2 },
  ...more,
});

test('pass@k is the share of draws of k that hold a right one', () => {
  assert.equal(passAtK(4, 2, 1), 0.5);
  assert.ok(Math.abs((passAtK(4, 2, 2) ?? 0) - 5 / 6) < 1e-12);
  assert.equal(passAtK(4, 0, 4), 0);
  assert.equal(passAtK(4, 1, 4), 1);
  assert.equal(passAtK(3, 1, 4), undefined);
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 8 }), fc.nat(8), fc.integer({ min: 1, max: 8 }), (n, c, k) => {
      fc.pre(c <= n && k <= n);
      let [draws, hits] = [0, 0];
      for (let set = 0; set < 2 ** n; set++) {
        const drawn = Array.from({ length: n }, (_, index) => index).filter((index) => (set >> index) & 1);
        if (drawn.length !== k) continue;
        draws++;
        if (drawn.some((index) => index < c)) hits++;
      }
      assert.ok(Math.abs((passAtK(n, c, k) ?? -1) - hits / draws) < 1e-9);
    }),
  );
});

test('intervals and the paired test give known values', () => {
  const half = meanShare([1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
  assert.deepEqual([half?.low.toFixed(3), half?.high.toFixed(3)], ['0.237', '0.763']);
  assert.deepEqual(meanShare([1, 1])?.high, 1);
  assert.ok((meanShare([1, 1])?.low ?? 0) < 0.4, 'two tasks prove little');
  assert.equal(pairedP([1, 1, 1, 1]), 2 / 16);
  assert.equal(pairedP([0, 0]), 1);
  assert.equal(pairedP([1, -1]), 1);
  assert.ok(pairedP(Array(40).fill(1)) < 0.001);
  assert.ok(pairedP(Array.from({ length: 40 }, (_, index) => (index % 2 === 0 ? 1 : -1))) > 0.9);
});

test('failed samples are counted, and are in no mean', () => {
  const [all] = measure([
    sample('a', 1),
    sample('a', 0, { truncated: true, toolCalls: 3, tokens: 30 }),
    sample('a', null, { tokens: 1000 }),
    sample('b', 0),
    sample('b', 0),
    sample('c', null),
  ]) as [Measures];
  assert.deepEqual([all.domain, all.tasks, all.samples, all.failed], ['all', 3, 6, 2]);
  assert.deepEqual([all.passAt[1]?.value, all.passAt[2]?.value, all.passAt[3]], [0.25, 0.5, undefined]);
  assert.deepEqual([all.meanReward?.value, all.meanReward?.tasks], [0.25, 2]);
  assert.deepEqual([all.truncated, all.toolCalls, all.tokens, all.seconds], [0.25, 1.5, 15, 2]);
  const domains = measure([sample('a', 1, { domain: 'x' }), sample('b', 0, { domain: 'y' })]);
  assert.deepEqual(
    domains.map(({ domain, meanReward }) => [domain, meanReward?.value]),
    [
      ['x', 1],
      ['y', 0],
      ['all', 0.5],
    ],
  );
  assert.deepEqual(measure([]).at(-1)?.meanReward, undefined);
});

test('two files are compared by the tasks that both have', () => {
  const first = [sample('a', 0), sample('a', 1), sample('b', 0), sample('c', 1), sample('d', null)];
  const second = [sample('a', 1), sample('b', 1), sample('c', 1), sample('c', null), sample('d', 1)];
  const { tasks, only, failed, difference, better, worse, p } = compare(first, second);
  assert.deepEqual(
    [only, failed],
    [
      [0, 1],
      [1, 1],
    ],
  );
  assert.deepEqual([tasks, difference?.value, better, worse, p], [3, 0.5, 2, 0, 0.5]);
});

test('the table of a recorded file is that of its trajectories; what is none is named', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'eval-'));
  t.after(() => rm(folder, { recursive: true }));
  const line = (id: string, reward: number | null, sequence_index = 0, parts = {}, handler = 'math') => ({
    ...{ rollout_id: id, sequence_index, task: { handler, id: id[0], data: { subject: 'sums' } } },
    ...{
      loss_mask: [1, 0, 1],
      reward: reward === null ? null : { total: reward, parts },
      truncated: null,
    },
    turns: [],
  });
  const from = path.join(folder, 'a.jsonl');
  const lines = [line('a1', 1), line('a1', 1, 1), line('b1', 0)];
  await writeFile(from, lines.map((one) => `${JSON.stringify(one)}\n`).join(''));
  const results: { measures: Measures[] }[] = [];
  let text = '';
  const output = {
    json: false,
    note: () => {},
    result: (value: unknown, say: () => string) => {
      results.push(value as { measures: Measures[] });
      text = say();
    },
  };
  assert.equal(await evalCommand(loadConfig(), { from, compare: from }, output), 0);
  const [sums, all] = results[0]?.measures ?? [];
  assert.deepEqual([sums?.domain, all?.samples, all?.tokens, all?.passAt[1]?.value], ['sums', 2, 3, 0.5]);
  assert.match(text, /pass@1[\s\S]*0\.500 \[0\.09, 0\.91\][\s\S]*0 better, 0 worse, p = 1\.0000$/);
  // Three samples of one task, shaped or not, one failed; a task of the same name of another kind.
  const more = path.join(folder, 'more.jsonl');
  const others = [
    ...[line('a1', 0.75, 0, { graded: 1, format: -0.25 }), line('a2', 0, 0, { graded: 1 }), line('a3', 1)],
    ...[line('a4', null), line('a5', 1, 0, {}, 'stem')],
  ];
  await writeFile(more, others.map((one) => `${JSON.stringify(one)}\n`).join(''));
  assert.equal(await evalCommand(loadConfig(), { from: more, compare: from }, output), 1);
  const mixed = results[1]?.measures.at(-1);
  assert.deepEqual([mixed?.tasks, mixed?.samples, mixed?.failed], [2, 5, 1]);
  assert.ok(Math.abs((mixed?.passAt[1]?.value ?? 0) - (2 / 3 + 1) / 2) < 1e-12);
  assert.match(text, /pass@1 .*pass@2 .*pass@3 /);
  assert.match(text, /1 \(20 %\)/);
  assert.match(text, /1 tasks of this and 1 of the other alone, 1 and 0 failed samples$/);
  await writeFile(
    from,
    lines
      .concat(line('a1', 1))
      .map((one) => `${JSON.stringify(one)}\n`)
      .join(''),
  );
  await assert.rejects(evalCommand(loadConfig(), { from }, output), {
    type: 'InvalidRequest',
    message: /a\.jsonl:4: sequence 0 of rollout a1 is in the file twice/,
  });
  await writeFile(from, '{"rollout_id": "a"}\n');
  await assert.rejects(evalCommand(loadConfig(), { from }, output), {
    type: 'InvalidRequest',
    message: /a\.jsonl:1: no trajectory/,
  });
  await assert.rejects(evalCommand(loadConfig(), {}, output), {
    type: 'InvalidRequest',
    message: /--tasks and --handler/,
  });
});
