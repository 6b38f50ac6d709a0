import assert from 'node:assert/strict';
import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import fc from 'fast-check';
import { BoundedOutput } from '../../workers/sandbox-host/shells/bounded-output.ts';
import { delimiters, type Marker, MarkerReader } from '../../workers/sandbox-host/shells/markers.ts';
import { OutputFolder } from '../../workers/sandbox-host/shells/output-folder.ts';
import { temporaryFolder } from './support.ts';

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
  const { begin, middle, end } = delimiters('secret');
  fc.assert(
    fc.property(fc.array(piece, { minLength: 1, maxLength: 8 }), fc.nat(30), (texts, size) => {
      const call = (index: number) =>
        `${begin}done:${index}:${index}:hBs:cmdhist:expand_aliases;/a b${middle}trap -- 'echo "it'\\''s" ' ERR\r\n${end}`;
      const cut = `${begin}done:1:1:hBs:;/a${middle}`; // the shell was killed as it told this
      const stream = Buffer.from(`${texts.map((text, index) => text + call(index)).join('')}${cut}rest`);
      const output: Buffer[] = [];
      const markers: Marker[] = [];
      const reader = new MarkerReader(
        'secret',
        (bytes) => output.push(Buffer.from(bytes)),
        (marker) => markers.push(marker),
      );
      for (let at = 0; at < stream.length; at += size + 1) reader.push(stream.subarray(at, at + size + 1));
      reader.flush();
      assert.equal(Buffer.concat(output).toString(), `${texts.join('')}rest`);
      assert.deepEqual(
        markers,
        texts.map((_, index) => ({
          ...{ kind: 'done', call: index, status: index, options: 'hBs', aliases: true, cwd: '/a b' },
          traps: new Map([['ERR', `echo "it'\\''s" `]]),
        })),
      );
    }),
  );
});

test('property: what is more than the bound goes whole, and in order, to the overflow', async () => {
  await fc.assert(
    fc.asyncProperty(chunks, fc.nat(120), async (parts, bound) => {
      const taken: Buffer[] = [];
      const end = async () => ({ path: 'file', bytes: Buffer.concat(taken).length, whole: true });
      const overflow = { write: (chunk: Buffer) => taken.push(Buffer.from(chunk)) % 2 === 0, end };
      const output = new BoundedOutput(bound, () => overflow);
      for (const part of parts) output.push(Buffer.from(part));
      const all = Buffer.concat(parts);
      const { file } = await output.end();
      assert.equal(file?.bytes, all.length > bound ? all.length : undefined);
      assert.deepEqual(Buffer.concat(taken), all.length > bound ? all : Buffer.alloc(0));
    }),
  );
});

test('files of output go, oldest first, when newer ones need the room, and one that has none is cut', async (t) => {
  const folder = path.join(temporaryFolder(t), 'output');
  const outputs = new OutputFolder(folder, '/inside', 1000);
  const write = async (bytes: number) => {
    const file = outputs.begin(() => {});
    for (let left = bytes; left > 0; left -= 100) file.write(Buffer.alloc(Math.min(left, 100), 'x'));
    return file.end();
  };
  assert.deepEqual(await write(600), { path: '/inside/1.txt', bytes: 600, whole: true });
  assert.deepEqual(await write(300), { path: '/inside/2.txt', bytes: 300, whole: true });
  assert.deepEqual(await write(500), { path: '/inside/3.txt', bytes: 500, whole: true });
  assert.deepEqual(readdirSync(folder), ['2.txt', '3.txt']);
  assert.deepEqual(await write(1050), { path: '/inside/4.txt', bytes: 1000, whole: false });
  assert.deepEqual(readdirSync(folder), ['4.txt']);
  rmSync(folder, { recursive: true });
  assert.deepEqual(await write(100), { path: '/inside/5.txt', bytes: 0, whole: false });
});
