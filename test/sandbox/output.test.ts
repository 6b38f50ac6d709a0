import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { BoundedOutput } from '../../workers/sandbox-host/shells/bounded-output.ts';
import { type Marker, MarkerReader } from '../../workers/sandbox-host/shells/markers.ts';

const chunks = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 });

test('property: bounded output keeps head and tail and counts the rest exactly', () => {
  fc.assert(
    fc.property(chunks, fc.nat(120), (parts, bound) => {
      const output = new BoundedOutput(bound);
      for (const part of parts) output.push(Buffer.from(part));
      const all = Buffer.concat(parts);
      const { text, totalBytes, omittedBytes } = output.finish();
      assert.equal(totalBytes, all.length);
      if (all.length <= bound) {
        assert.equal(omittedBytes, 0);
        assert.equal(text, new TextDecoder('utf-8', { ignoreBOM: true }).decode(all));
        return;
      }
      assert.deepEqual(
        output.bytes(),
        Buffer.concat([all.subarray(0, Math.ceil(bound / 2)), tail(all, bound)]),
      );
      // At most the rest of a character on each side of the cut goes too.
      assert.ok(omittedBytes >= all.length - bound && omittedBytes <= all.length - bound + 6);
      assert.ok(text.includes(`[... ${omittedBytes} bytes left out ...]`));
    }),
  );
});

function tail(all: Buffer, bound: number): Buffer {
  return all.subarray(all.length - Math.floor(bound / 2));
}

test('property: a cut goes through no character', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', minLength: 10, maxLength: 60 }), fc.nat(30), (whole, bound) => {
      const output = new BoundedOutput(bound);
      output.push(Buffer.from(whole));
      fc.pre(!whole.includes('\ufffd'));
      assert.ok(!output.finish().text.includes('\ufffd'));
    }),
  );
});

test('property: markers are found wherever chunks end, and nothing else is taken', () => {
  const piece = fc.oneof(
    fc.constant('\x01secret'),
    fc.constant('\x01'),
    fc.constant('\x02'),
    fc.string({ unit: 'binary' }),
  );
  fc.assert(
    fc.property(fc.array(piece, { minLength: 1, maxLength: 8 }), fc.nat(30), (texts, size) => {
      const call = (index: number) => `\x01secret:ran:${index}:${index}:/a b\x02`;
      const stream = Buffer.from(texts.map((text, index) => text + call(index)).join(''));
      const output: Buffer[] = [];
      const markers: Marker[] = [];
      const reader = new MarkerReader(
        'secret',
        (bytes) => output.push(Buffer.from(bytes)),
        (marker) => markers.push(marker),
      );
      for (let at = 0; at < stream.length; at += size + 1) reader.push(stream.subarray(at, at + size + 1));
      reader.flush();
      assert.equal(Buffer.concat(output).toString(), texts.join(''));
      assert.deepEqual(
        markers,
        texts.map((_, index) => ({ kind: 'ran', call: index, status: index, cwd: '/a b' })),
      );
    }),
  );
});
