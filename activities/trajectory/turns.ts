import type { LedgerRecord, LedgerSampled } from '../../contracts/ledger.ts';

/*
 * A turn is what the model samples between two observations. A request that was broken off leaves a record
 * with `finish: 'abort'`, and the next record goes on with the same turn. Pure.
 */

/** Turns that were sampled to their end. */
export function turnsIn(records: readonly LedgerRecord[]): number {
  return records.filter((record) => record.kind === 'sampled' && record.finish !== 'abort').length;
}

/** Tokens of the turn that was broken off and is to go on; none if the last one came to its end. */
export function openTurnIds(records: readonly LedgerRecord[]): number[] {
  const last = records.at(-1);
  return last?.kind === 'sampled' && last.finish === 'abort' ? lastTurnIds(records) : [];
}

/** All tokens sampled in the last turn, over its requests. */
export function lastTurnIds(records: readonly LedgerRecord[]): number[] {
  const last = records.findLast((record) => record.kind === 'sampled');
  return records
    .filter((record): record is LedgerSampled => record.kind === 'sampled' && record.turn === last?.turn)
    .flatMap(({ ids }) => ids);
}
