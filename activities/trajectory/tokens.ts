import { RolloutError } from '../../contracts/failures.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { PolicySpan } from '../../contracts/llm.ts';
import { spansOf, versionOfEach } from './versions.ts';

/**
 * The tokens of one rollout as they grow: every prompt is exactly the previous prompt, the tokens sampled
 * after it, and a delta that renders only what is new. Nothing is ever encoded twice.
 */
export class TokenSequence {
  readonly inputIds: readonly number[];
  readonly outputIds: number[] = [];
  readonly logprobs: number[] = [];
  readonly lossMask: (0 | 1)[] = [];
  readonly policyVersions: number[] = [];

  constructor(inputIds: readonly number[]) {
    this.inputIds = inputIds;
  }

  /** All tokens so far: the prompt of the next request. */
  get prompt(): number[] {
    return this.inputIds.concat(this.outputIds); // spread, it is written one by one
  }

  /** Tokens so far, prompt included. */
  get length(): number {
    return this.inputIds.length + this.outputIds.length;
  }

  /** True if `ids` begin with all tokens so far. */
  isPrefixOf(ids: readonly number[]): boolean {
    const { inputIds, outputIds } = this;
    return (
      this.length <= ids.length &&
      inputIds.every((id, at) => id === ids[at]) &&
      outputIds.every((id, at) => id === ids[inputIds.length + at])
    );
  }

  /**
   * Tokens that the policy sampled.
   * @throws RolloutError LlmInvalidAnswer if ids, log-probabilities and versions do not align.
   */
  appendSampled(ids: readonly number[], logprobs: readonly number[], spans: readonly PolicySpan[]): void {
    if (ids.length !== logprobs.length) {
      throw new RolloutError(
        'LlmInvalidAnswer',
        `${ids.length} sampled tokens came with ${logprobs.length} log-probabilities`,
      );
    }
    const versions = versionOfEach(ids.length, spans);
    for (const [index, id] of ids.entries()) {
      this.push(id, logprobs[index] as number, 1, versions[index] as number);
    }
  }

  /** Tokens of tool results and of the template: mask 0, log-probability 0, version −1. */
  appendObserved(ids: readonly number[]): void {
    for (const id of ids) this.push(id, 0, 0, -1);
  }

  private push(id: number, logprob: number, mask: 0 | 1, version: number): void {
    this.outputIds.push(id);
    this.logprobs.push(logprob);
    this.lossMask.push(mask);
    this.policyVersions.push(version);
  }

  /**
   * Rebuilds the sequence that a ledger recorded.
   * @throws RolloutError StoreCorrupt if a record does not extend the ones before it.
   */
  static fromLedger(records: readonly LedgerRecord[]): TokenSequence | undefined {
    const begin = records[0];
    if (begin === undefined) return undefined;
    if (begin.kind !== 'begin') throw new RolloutError('StoreCorrupt', `ledger starts with ${begin.kind}`);
    const sequence = new TokenSequence(begin.promptIds);
    for (const record of records.slice(1)) {
      if (record.kind === 'begin') throw new RolloutError('StoreCorrupt', 'ledger begins twice');
      if (record.kind === 'sampled') {
        if (record.promptLength !== sequence.length) {
          throw new RolloutError(
            'StoreCorrupt',
            `turn ${record.turn} was sampled after ${record.promptLength} tokens, the ledger holds ${sequence.length}`,
          );
        }
        sequence.appendSampled(record.ids, record.logprobs, spansOf(record));
      }
      if (record.kind === 'observed') sequence.appendObserved(record.deltaIds);
    }
    return sequence;
  }
}
