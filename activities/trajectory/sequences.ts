import type { LedgerRecord } from '../../contracts/ledger.ts';

/**
 * The records of each of a ledger's sequences, in order. The end of the rollout is the end of all of them. Pure.
 */
export function sequencesOf(records: readonly LedgerRecord[]): LedgerRecord[][] {
  const sequences: LedgerRecord[][] = [];
  for (const record of records) {
    if (record.kind === 'end') {
      for (const each of sequences) each.push(record);
      continue;
    }
    const { sequence = 0 } = record;
    sequences[sequence] ??= [];
    sequences[sequence].push(record);
  }
  return sequences;
}
