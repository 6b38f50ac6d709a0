import type { LedgerRecord } from '../../contracts/ledger.ts';

/**
 * The records of each of a ledger's sequences, in order. The end of the rollout is the end of all of them. Pure.
 */
export function sequencesOf(records: readonly LedgerRecord[]): LedgerRecord[][] {
  const sequences = new Map<number, LedgerRecord[]>();
  for (const record of records) {
    if (record.kind === 'end') {
      for (const each of sequences.values()) each.push(record);
      continue;
    }
    const { sequence = 0 } = record;
    const own = sequences.get(sequence);
    if (own) own.push(record);
    else sequences.set(sequence, [record]);
  }
  return [...sequences.values()];
}
