import { RolloutError } from '../../contracts/failures.ts';
import type { LedgerRecord, LedgerSampled } from '../../contracts/ledger.ts';
import type { PolicySpan } from '../../contracts/llm.ts';

/** Lowest and highest policy version among the sampled tokens; null if nothing was sampled. */
export function versionRange(records: readonly LedgerRecord[]): [number, number] | null {
  const versions = records.flatMap((record) =>
    record.kind === 'sampled' ? spansOf(record).map(({ version }) => version) : [],
  );
  return versions.length === 0 ? null : [Math.min(...versions), Math.max(...versions)];
}

/** Which tokens of a record each policy version sampled. */
export function spansOf({ ids, policyVersion, versions }: LedgerSampled): readonly PolicySpan[] {
  return versions ?? [{ version: policyVersion, start: 0, end: ids.length }];
}

/** Spans as a record keeps them. */
export function recordedVersions(
  spans: readonly PolicySpan[],
): Pick<LedgerSampled, 'policyVersion' | 'versions'> {
  const versions = spans.map(({ version }) => version);
  const policyVersion = Math.min(...versions);
  return { policyVersion, ...(new Set(versions).size > 1 ? { versions: [...spans] } : {}) };
}

/**
 * The policy version of each of so many tokens.
 * @throws RolloutError LlmInvalidAnswer if the spans leave one out or overlap.
 */
export function versionOfEach(tokens: number, spans: readonly PolicySpan[]): number[] {
  const each: number[] = [];
  for (const { version, start, end } of spans) {
    if (start !== each.length || end < start) break;
    for (let at = start; at < end; at++) each.push(version);
  }
  if (each.length === tokens) return each;
  throw new RolloutError(
    'LlmInvalidAnswer',
    `${tokens} sampled tokens came with versions of ${JSON.stringify(spans)}`,
  );
}
