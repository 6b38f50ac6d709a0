import type { LedgerRecord } from '../../contracts/ledger.ts';

/** Lowest and highest policy version among the sampled tokens; null if nothing was sampled. */
export function versionRange(records: readonly LedgerRecord[]): [number, number] | null {
  const versions = records.flatMap((record) => (record.kind === 'sampled' ? [record.policyVersion] : []));
  return versions.length === 0 ? null : [Math.min(...versions), Math.max(...versions)];
}
