import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import test from 'node:test';
import fc from 'fast-check';
import { byteLines } from '../../activities/byte-lines.ts';

test('property: a line ends where its newline is, whatever else ends lines among characters', async () => {
  const text = fc
    .array(
      fc.oneof(fc.constantFrom('\u2028', '\u2029', '\u0085', '\f', '"'), fc.string({ unit: 'grapheme' })),
    )
    .map((parts) => JSON.stringify(parts.join('')));
  await fc.assert(
    fc.asyncProperty(
      fc.array(text, { minLength: 1 }),
      fc.integer({ min: 1, max: 9 }),
      async (texts, size) => {
        const bytes = Buffer.from(texts.map((each) => `${each}\n`).join(''));
        const chunks: Buffer[] = [];
        for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
        const lines: string[] = [];
        for await (const line of byteLines(Readable.from(chunks))) lines.push(line.toString());
        assert.deepEqual(lines, texts);
      },
    ),
  );
});
