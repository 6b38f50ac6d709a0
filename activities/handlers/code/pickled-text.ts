import { inflateSync } from 'node:zlib';

/** Opcodes of Python's pickle that begin a text: how many bytes its length takes, little-endian. */
const TEXT: Record<number, number> = { 140: 1, 88: 4, 141: 8 };
const [PROTO, FRAME] = [0x80, 0x95];
/** Bytes that tests may take when they are unpacked. */
const MOST_BYTES = 512 * 1024 ** 2;

/**
 * The text in base64 of zlib of a pickle of one text, as LiveCodeBench packs its private tests; undefined if it is
 * anything else. Nothing is unpickled: a pickle can run code.
 */
export function pickledText(packed: string): string | undefined {
  let bytes: Buffer;
  try {
    bytes = inflateSync(Buffer.from(packed, 'base64'), { maxOutputLength: MOST_BYTES });
  } catch {
    return undefined; // no zlib
  }
  let at = 0;
  if (bytes[at] === PROTO) at += 2;
  if (bytes[at] === FRAME) at += 9;
  const width = TEXT[bytes[at] ?? 0];
  if (width === undefined) return undefined;
  const start = at + 1 + width;
  const length = bytes.readUIntLE(at + 1, Math.min(width, 6));
  return start + length <= bytes.length ? bytes.toString('utf8', start, start + length) : undefined;
}
