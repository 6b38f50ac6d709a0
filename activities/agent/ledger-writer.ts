import type { LedgerRecord } from '../../contracts/ledger.ts';

/** Appends one record with its sequence number; durable when it resolves. */
export type AppendRecord = (seq: number, record: LedgerRecord) => Promise<void>;

/** The agent's view of its ledger: what is recorded, and a way to record more. */
export class LedgerWriter {
  readonly records: LedgerRecord[];
  private readonly appendRecord: AppendRecord;

  constructor(recorded: readonly LedgerRecord[], append: AppendRecord) {
    this.records = [...recorded];
    this.appendRecord = append;
  }

  async append(record: LedgerRecord): Promise<void> {
    await this.appendRecord(this.records.length, record);
    this.records.push(record);
  }
}
