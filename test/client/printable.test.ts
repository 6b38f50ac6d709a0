import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { makeOutput } from '../../client/output.ts';
import { CONTROL, printable, printableJson } from '../../client/printable.ts';

const anyText = fc.string({
  unit: fc.oneof(
    fc.integer({ min: 0, max: 0x9f }).map((c) => String.fromCharCode(c)),
    fc.string(),
  ),
});

test('no text can steer a terminal, and JSON says all the same what it said', () => {
  fc.assert(
    fc.property(anyText, fc.jsonValue(), (text, value) => {
      assert.deepEqual(
        printable(text)
          .replaceAll(/[\n\t]/g, '')
          .match(CONTROL),
        null,
      );
      assert.deepEqual(printableJson({ text, value }).match(CONTROL), null);
      assert.deepEqual(
        JSON.parse(printableJson({ text, value })),
        JSON.parse(JSON.stringify({ text, value })),
      );
    }),
  );
  assert.equal(printable('a\tb\r\nc\n'), 'a\tb\nc\n');
});

test('what a command says passes through that', (t) => {
  const said: string[] = [];
  const write = ((text: string) => said.push(text) > 0) as typeof process.stdout.write;
  const out = t.mock.method(process.stdout, 'write', write);
  const err = t.mock.method(process.stderr, 'write', write);
  const hostile = 'ls\u001b]52;c;cm0gLXJm\u0007 \u009b2J';
  makeOutput(false).result({}, () => hostile);
  makeOutput(true).result(hostile, () => '');
  makeOutput(false).note(hostile);
  out.mock.restore();
  err.mock.restore();
  const safe = 'ls\uFFFD]52;c;cm0gLXJm\uFFFD \uFFFD2J\n';
  assert.deepEqual(said, [safe, '"ls\\u001b]52;c;cm0gLXJm\\u0007 \\u009b2J"\n', safe]);
});
