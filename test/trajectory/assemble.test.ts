import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  assembleTrajectories,
  assembleTrajectory,
  checksumOf,
} from '../../activities/trajectory/assemble.ts';
import { ledgerProblems, proveLine } from '../../activities/trajectory/prove.ts';
import { TokenSequence } from '../../activities/trajectory/tokens.ts';
import { recordedVersions, spansOf, versionOfEach } from '../../activities/trajectory/versions.ts';
import type { LedgerRecord, LedgerSampled } from '../../contracts/ledger.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { ledgers, request } from './records.ts';

const context = {
  request,
  workflowRunId: 'run',
  attempt: 1,
  reward: { total: 1, parts: { correct: 1 } },
  metadata: {},
};

test('a trajectory holds the ledger’s tokens, each with its mask, log-probability and version', () => {
  fc.assert(
    fc.property(ledgers, (records) => {
      const trajectory = assembleTrajectory(records, context);
      const begin = records[0];
      assert.ok(begin?.kind === 'begin');
      assert.deepEqual(trajectory.input_ids, begin.promptIds);
      const expected = records.flatMap((record) => {
        if (record.kind === 'sampled') {
          const { ids, logprobs, policyVersion, versions } = record;
          // Swapped under the request after its first token, where the ledger says so.
          const later = versions ? policyVersion + 1 : policyVersion;
          return ids.map((id, index) => [id, 1, logprobs[index], index === 0 ? policyVersion : later]);
        }
        if (record.kind === 'observed') return record.deltaIds.map((id) => [id, 0, 0, -1]);
        return [];
      });
      const got = trajectory.output_ids.map((id, index) => [
        id,
        trajectory.loss_mask[index],
        trajectory.logprobs[index],
        trajectory.policy_versions[index],
      ]);
      assert.deepEqual(got, expected);
    }),
  );
});

test('turns cover the output without a gap, and each prompt is the sequence up to its sampled span', () => {
  fc.assert(
    fc.property(ledgers, (records) => {
      const { input_ids, output_ids, turns } = assembleTrajectory(records, context);
      let position = 0;
      for (const turn of turns) {
        assert.equal(turn.sampled[0], position);
        assert.equal(turn.sampled[1], turn.observed[0]);
        const sampled = records.find((record) => record.kind === 'sampled' && record.turn === turn.turn);
        assert.ok(sampled?.kind === 'sampled');
        assert.equal(input_ids.length + position, sampled.promptLength);
        position = turn.observed[1];
      }
      assert.equal(position, output_ids.length);
    }),
  );
});

test('the checksum survives writing and reading, and shows a changed token', () => {
  fc.assert(
    fc.property(ledgers, (records) => {
      const read = Trajectory.parse(JSON.parse(JSON.stringify(assembleTrajectory(records, context))));
      assert.equal(checksumOf(read), read.checksum);
      (read.input_ids as number[])[0] = (read.input_ids[0] as number) + 1;
      assert.notEqual(checksumOf(read), read.checksum);
    }),
  );
});

test('metadata counts tool calls by what became of reading them', () => {
  fc.assert(
    fc.property(ledgers, fc.boolean(), (records, spoil) => {
      const sampled = records.filter((record) => record.kind === 'sampled');
      const [call] = sampled[0]?.calls ?? [];
      if (call && spoil) call.status = 'unclosed';
      const unclosed = call && spoil ? 1 : 0;
      assert.deepEqual(assembleTrajectory(records, context).metadata.tool_calls, {
        ok: sampled.length - unclosed,
        unclosed,
        invalidJson: 0,
        unknownTool: 0,
        wrongArguments: 0,
      });
    }),
  );
});

test('a ledger without an end is an aborted trajectory', () => {
  const records = fc.sample(ledgers, 20).map((ledger) => ledger.filter((record) => record.kind !== 'end'));
  for (const ledger of records) assert.equal(assembleTrajectory(ledger, context).finish_reason, 'aborted');
});

test('a ledger whose turn follows another prompt than it says is refused', () => {
  fc.assert(
    fc.property(ledgers, (records) => {
      const sampled = records.find((record) => record.kind === 'sampled');
      fc.pre(sampled !== undefined);
      sampled.promptLength++;
      assert.throws(() => TokenSequence.fromLedger(records), { type: 'StoreCorrupt' });
    }),
  );
});

test('a missing or extra log-probability is never filled in', () => {
  const sequence = new TokenSequence([1, 2]);
  const whole = (end: number) => [{ version: 0, start: 0, end }];
  assert.throws(() => sequence.appendSampled([3, 4], [-0.1], whole(2)), { type: 'LlmInvalidAnswer' });
  assert.throws(() => sequence.appendSampled([3], [-0.1, -0.2], whole(1)), { type: 'LlmInvalidAnswer' });
});

test('each token has one version: spans that leave one out, overlap or go beyond are refused', () => {
  const span = (version: number, start: number, end: number) => ({ version, start, end });
  assert.deepEqual(versionOfEach(3, [span(4, 0, 2), span(5, 2, 3)]), [4, 4, 5]);
  for (const spans of [
    [],
    [span(4, 0, 2)],
    [span(4, 0, 2), span(5, 1, 3)],
    [span(4, 0, 4)],
    [span(4, 1, 4)],
  ]) {
    assert.throws(() => versionOfEach(3, spans), { type: 'LlmInvalidAnswer' });
  }
  const three = { ids: [7, 8, 9], policyVersion: 4 } as LedgerSampled;
  assert.deepEqual(recordedVersions(spansOf(three)), { policyVersion: 4 });
  const swapped = [span(5, 0, 1), span(4, 1, 3)];
  assert.deepEqual(recordedVersions(swapped), { policyVersion: 4, versions: swapped });
});

test('several sequences in one ledger are each what they would be alone, and proven against it', () => {
  fc.assert(
    fc.property(ledgers, ledgers, fc.infiniteStream(fc.boolean()), (one, other, order) => {
      const alone = [one, other].map((records) => records.filter(({ kind }) => kind !== 'end'));
      const [first, second] = [
        alone[0] ?? [],
        (alone[1] ?? []).map((record) => ({ ...record, sequence: 1 })),
      ];
      // In any order that begins with the first.
      const mixed: LedgerRecord[] = [first[0] as LedgerRecord];
      const rest = [first.slice(1), second] as LedgerRecord[][];
      for (const turn of order) {
        const next = rest[Number(turn)]?.shift() ?? rest[Number(!turn)]?.shift();
        if (!next) break;
        mixed.push(next);
      }
      const lines = assembleTrajectories(mixed, context);
      assert.deepEqual(
        lines.map((line) => [line.sequence_index, line.sequence_count]),
        [
          [0, 2],
          [1, 2],
        ],
      );
      for (const [index, line] of lines.entries()) {
        const expected = assembleTrajectory(alone[index] ?? [], context);
        assert.deepEqual(
          { ...line, checksum: '', sequence_index: 0, sequence_count: 1 },
          { ...expected, checksum: '' },
        );
        assert.deepEqual(proveLine(JSON.stringify(line)).problems, []);
        assert.deepEqual(ledgerProblems(line, mixed), []);
      }
      const [wrong] = assembleTrajectories(alone[0] ?? [], context);
      assert.deepEqual(ledgerProblems(wrong as Trajectory, mixed), [
        'calls itself one of 1 sequences, its ledger has 2',
      ]);
    }),
    { numRuns: 30 },
  );
});
