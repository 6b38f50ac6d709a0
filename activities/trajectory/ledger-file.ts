import { createHash } from 'node:crypto';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { type LedgerLine, LedgerRecord } from '../../contracts/ledger.ts';

/** Hash before the first line. */
export const NO_HASH = '';

/** The line that follows one whose hash is `before`, and as it is written to the file, its newline included. */
export function sealLine(
  before: string,
  { seq, fence, at, record }: Omit<LedgerLine, 'hash'>,
): { line: LedgerLine; text: string } {
  // Once for both: a record may have many thousand tokens.
  const body = JSON.stringify({ seq, fence, at, record });
  const hash = hashOf(before, body);
  return { line: { seq, fence, at, record, hash }, text: `${body.slice(0, -1)},"hash":"${hash}"}\n` };
}

function hashOf(before: string, body: string): string {
  return createHash('sha256')
    .update(before + body)
    .digest('hex')
    .slice(0, 16);
}

/** A ledger file as read. */
export interface ParsedLedger {
  readonly lines: LedgerLine[];
  /** Bytes that hold whole lines; what follows is a torn tail, to be cut off before the next append. */
  readonly validBytes: number;
}

/**
 * Reads a ledger file. A last line without its newline (a crash in the middle of an append) is dropped: that
 * append was never answered.
 * @throws RolloutError StoreCorrupt, naming `name` and the line, when a whole line is altered
 */
export function parseLedger(content: Buffer, name: string): ParsedLedger {
  const lines: LedgerLine[] = [];
  let hash = NO_HASH;
  let start = 0;
  while (start < content.length) {
    const newline = content.indexOf(10, start);
    if (newline < 0) return { lines, validBytes: start };
    const line = readLine(content.toString('utf8', start, newline), lines.length, hash);
    if (typeof line === 'string') {
      throw new RolloutError('StoreCorrupt', `${name}, line ${lines.length + 1}: ${line}`);
    }
    lines.push(line);
    hash = line.hash;
    start = newline + 1;
  }
  return { lines, validBytes: start };
}

/** The line, or what is wrong with it. */
function readLine(text: string, seq: number, before: string): LedgerLine | string {
  let value: LedgerLine;
  try {
    value = JSON.parse(text) as LedgerLine;
  } catch (error) {
    return messageOf(error);
  }
  if (typeof value !== 'object' || value === null) return 'not an object';
  if (value.seq !== seq) return `sequence number ${value.seq} where ${seq} is due`;
  const { fence, at } = value;
  const body = JSON.stringify({ seq, fence, at, record: value.record });
  if (value.hash !== hashOf(before, body)) return 'does not match its checksum';
  const record = LedgerRecord.safeParse(value.record);
  return record.success ? value : `not a ledger record: ${record.error.message}`;
}
