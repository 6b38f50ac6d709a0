import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { createGunzip } from 'node:zlib';
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { byteLines } from '../activities/byte-lines.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';

const UTF8 = new TextDecoder('utf-8', { fatal: true });

/** One row of a data set, or why there is none; rows count from 1, as lines do. */
export type Row = { readonly line: number } & ({ readonly fields: Fields } | { readonly problem: string });
export type Fields = Readonly<Record<string, unknown>>;

/** JSON.stringify writes what is no character as an escape; pairs and escaped backslashes are none. */
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/i;
/** First bytes of every Parquet file, and of what gzip wrote. */
const [PARQUET, GZIP] = [Buffer.from('PAR1'), Buffer.from([0x1f, 0x8b])];

/**
 * The rows of a data set as JSON values: a JSONL file (also one that gzip compressed), or a Parquet file, told apart
 * by their first bytes. One row, or one group of rows, is in memory at a time. A row that can't be read is told as
 * such and stops nothing else.
 * @throws RolloutError InvalidRequest if the file can't be read
 */
export async function* rowsOf(file: string): AsyncIterable<Row> {
  try {
    const start = await firstBytes(file);
    if (start.equals(PARQUET)) yield* parquetRows(file);
    else yield* jsonRows(file, start.subarray(0, 2).equals(GZIP));
  } catch (error) {
    if (error instanceof RolloutError) throw error;
    throw new RolloutError('InvalidRequest', `${file}: ${messageOf(error)}`, { cause: error });
  }
}

async function firstBytes(file: string): Promise<Buffer> {
  const handle = await open(file);
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(4), 0, 4, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}

async function* jsonRows(file: string, compressed: boolean): AsyncIterable<Row> {
  const source = createReadStream(file);
  const bytes = compressed ? source.pipe(createGunzip()) : source;
  source.on('error', (error) => bytes.destroy(error));
  try {
    let line = 0;
    for await (const raw of byteLines(bytes)) {
      line++;
      const text = decoded(raw);
      if (text === undefined) yield { line, problem: 'is not UTF-8' };
      else if (text.trim() !== '') yield { line, ...parsed(text) };
    }
  } finally {
    source.destroy();
    bytes.destroy();
  }
}

/** Without a byte order mark, which is no part of the JSON; undefined if the bytes are no UTF-8. */
function decoded(bytes: Buffer): string | undefined {
  try {
    return UTF8.decode(bytes);
  } catch {
    return undefined; // told by the row's number
  }
}

function parsed(text: string): { fields: Fields } | { problem: string } {
  try {
    return checked(JSON.parse(text));
  } catch (error) {
    // Without the words of the line: who names a file over HTTP may not be one who may read it.
    const at = /at position \d+/.exec(messageOf(error))?.[0];
    return { problem: at === undefined ? 'is not JSON' : `is not JSON, ${at}` };
  }
}

async function* parquetRows(file: string): AsyncIterable<Row> {
  const buffer = await asyncBufferFromFile(file);
  const metadata = await parquetMetadataAsync(buffer);
  let line = 0;
  for (const group of metadata.row_groups) {
    const rowEnd = line + Number(group.num_rows);
    const rows = await parquetReadObjects({ file: buffer, metadata, compressors, rowStart: line, rowEnd });
    for (const row of rows) yield { line: ++line, ...checked(asJson(row)) };
  }
}

/** Parquet's values as JSON has them; a field without a value is absent. */
function asJson(value: unknown): unknown {
  if (typeof value === 'bigint') {
    return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString();
  }
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  if (ArrayBuffer.isView(value)) return Array.from(value as unknown as ArrayLike<unknown>, asJson);
  if (Array.isArray(value)) return value.map(asJson);
  if (value === null || typeof value !== 'object') return value;
  const present = Object.entries(value).filter(([, field]) => field !== null && field !== undefined);
  return Object.fromEntries(present.map(([name, field]) => [name, asJson(field)]));
}

function checked(value: unknown): { fields: Fields } | { problem: string } {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    return { problem: 'expected a JSON object on the line' };
  }
  if (LONE_SURROGATE.test(JSON.stringify(value))) {
    return { problem: 'a text holds half of a surrogate pair, which no tokenizer takes' };
  }
  return { fields: value as Fields };
}
