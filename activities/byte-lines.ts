import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

/**
 * The lines of a stream of JSONL, as they came. By bytes: among characters there are more ends of lines (U+2028), which
 * texts in JSON may hold.
 */
export async function* byteLines(bytes: Readable): AsyncIterable<Buffer> {
  const lines = createInterface({ input: bytes.setEncoding('latin1'), crlfDelay: Number.POSITIVE_INFINITY });
  for await (const line of lines) yield Buffer.from(line, 'latin1');
}
