import fc from 'fast-check';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import { RolloutRequest } from '../../contracts/request.ts';

/** A request for tests. */
export const request = RolloutRequest.parse({
  rolloutId: 'batch:task:0',
  task: { handler: 'math', id: 'task', data: { question: 'q', answer: '1' } },
});

const ids = (max: number) => fc.array(fc.nat(49_151), { minLength: 1, maxLength: max });

/** Ledgers of whole runs: a prompt, some turns with tools, perhaps a last one without, perhaps an end. */
export const ledgers: fc.Arbitrary<LedgerRecord[]> = fc
  .record({
    promptIds: ids(20),
    turns: fc.array(
      fc.record({
        ids: ids(10),
        deltaIds: ids(10),
        policyVersion: fc.nat(5),
        /** Weights were swapped under the request, after one token. */
        swapped: fc.boolean(),
        logprob: fc.double({ min: -20, max: -1e-9, noNaN: true }),
      }),
      { maxLength: 6 },
    ),
    ended: fc.constantFrom('finished', 'turns', 'tokens', 'context', 'deadline', 'aborted'),
    withEnd: fc.boolean(),
  })
  .map(({ promptIds, turns, ended, withEnd }) => {
    const records: LedgerRecord[] = [
      {
        kind: 'begin',
        promptIds,
        messages: [{ role: 'user', content: 'q' }],
        tools: ['bash'],
        model: { name: 'm', model_hash: 'sha256:1', tokenizer_hash: 'sha256:2', template_hash: 'sha256:3' },
      },
    ];
    let length = promptIds.length;
    for (const [turn, { ids, deltaIds, policyVersion, swapped, logprob }] of turns.entries()) {
      const versions = [
        { version: policyVersion, start: 0, end: 1 },
        { version: policyVersion + 1, start: 1, end: ids.length },
      ];
      records.push({
        kind: 'sampled',
        turn,
        promptLength: length,
        ids,
        logprobs: ids.map(() => logprob),
        policyVersion,
        ...(swapped && ids.length > 1 ? { versions } : {}),
        finish: 'stop',
        text: `turn ${turn}`,
        calls: [{ callId: `${turn}.0`, tool: 'bash', arguments: { command: 'true' }, status: 'ok' }],
        server: 'http://127.0.0.1:1',
        startedAt: '2026-01-01T00:00:00.000Z',
        ms: 1,
      });
      records.push({
        kind: 'observed',
        turn,
        results: [{ callId: `${turn}.0`, tool: 'bash', status: 'ok', exitCode: 0, text: '', ms: 2 }],
        messages: [{ role: 'tool', content: '' }],
        deltaIds,
      });
      length += ids.length + deltaIds.length;
    }
    if (withEnd) records.push({ kind: 'end', ended: ended as 'finished', outcome: { answer: '1' } });
    return records;
  });
