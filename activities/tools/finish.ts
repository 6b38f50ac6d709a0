import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { Tool } from './tool.ts';

const ARGUMENT = 'answer';

/** The agent says that it is done, and its answer. The loop ends with this call. */
export const finish: Tool = {
  spec: {
    name: 'finish',
    description: 'Say that the task is done and give the final answer. Nothing can be done after it.',
    parameters: {
      type: 'object',
      properties: { [ARGUMENT]: { type: 'string', description: 'The final answer.' } },
      required: [ARGUMENT],
      additionalProperties: false,
    },
    fence: { language: 'finish', argument: ARGUMENT },
  },

  run: async () => ({ status: 'ok', exitCode: null, text: 'Done.', ends: true }),
};

/** The answer given to {@link finish}; null if it was not called. */
export function finalAnswer(records: readonly LedgerRecord[]): string | null {
  const observed = records.findLast((record) => record.kind === 'observed');
  const ending = observed?.results.find((result) => result.ends && result.tool === finish.spec.name);
  const sampled = records.findLast((record) => record.kind === 'sampled' && record.turn === observed?.turn);
  if (!ending || sampled?.kind !== 'sampled') return null;
  const call = sampled.calls.find(({ callId }) => callId === ending.callId);
  return call ? String(call.arguments[ARGUMENT]) : null;
}
