import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import fc from 'fast-check';
import { NO_HASH, parseLedger, sealLine } from '../../activities/trajectory/ledger-file.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import { Ledger } from '../../workers/sandbox-host/ledger/ledger.ts';
import { failure, temporaryFolder } from './support.ts';

const record = (turn: number, content = 'text'): LedgerRecord => ({
  kind: 'observed',
  turn,
  results: [],
  messages: [{ role: 'tool', content }],
  deltaIds: [turn, 7],
});
const anyone = () => {};

function file(records: LedgerRecord[]): Buffer {
  let before = NO_HASH;
  const lines = records.map((each, seq): string => {
    const { line, text } = sealLine(before, { seq, fence: 1, at: '2026-01-01T00:00:00.000Z', record: each });
    before = line.hash;
    return text;
  });
  return Buffer.from(lines.join(''));
}

test('appends are on disk in order, and the same one again changes nothing', async (t) => {
  const name = path.join(temporaryFolder(t), 'ledger.jsonl');
  const ledger = await Ledger.open(name);
  await Promise.all([0, 1, 2].map((turn) => ledger.append(turn, 5, record(turn), anyone)));
  await ledger.append(1, 5, record(1), anyone);
  await assert.rejects(
    ledger.append(1, 5, record(9), anyone),
    failure('FenceRefused', /record 1 was refused/),
  );
  await assert.rejects(
    ledger.append(4, 5, record(4), anyone),
    failure('FenceRefused', /next record .* is 3/),
  );
  assert.throws(() => ledger.append(3, 5, { kind: 'unknown' }, anyone), failure('InvalidRequest', /kind/));
  const refused = new Error('not the newest');
  await assert.rejects(
    ledger.append(3, 5, record(3), () => {
      throw refused;
    }),
    refused,
  );
  const { lines } = parseLedger(readFileSync(name), name);
  assert.deepEqual(lines, await ledger.read());
  assert.deepEqual(
    lines.map((line) => line.record),
    [0, 1, 2].map((turn) => record(turn)),
  );
  await ledger.close();
});

test('a torn tail is dropped and written over', async (t) => {
  const name = path.join(temporaryFolder(t), 'ledger.jsonl');
  writeFileSync(name, file([record(0), record(1)]));
  appendFileSync(name, '{"seq":2,"fence":1,"at":"2026');
  const ledger = await Ledger.open(name);
  assert.equal((await ledger.read()).length, 2);
  await ledger.append(2, 9, record(2), anyone);
  await ledger.close();
  assert.equal(parseLedger(readFileSync(name), name).lines.length, 3);
});

test('property: cut anywhere, a ledger gives exactly the records that were whole', () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: 'binary' }), { maxLength: 6 }), fc.nat(), (texts, where) => {
      const whole = file(texts.map((text, turn) => record(turn, text)));
      const cut = whole.subarray(0, where % (whole.length + 1));
      const { lines, validBytes } = parseLedger(cut, 'cut');
      assert.equal(lines.length, cut.toString('latin1').split('\n').length - 1);
      assert.deepEqual(file(lines.map((line) => line.record)), cut.subarray(0, validBytes));
    }),
  );
});

test('property: any one byte altered in a whole line is noticed', () => {
  const whole = file([record(0, 'a'), record(1, 'ü'), record(2, 'c')]);
  fc.assert(
    fc.property(fc.nat(whole.length - 2), fc.integer({ min: 1, max: 255 }), (at, change) => {
      const altered = Buffer.from(whole);
      altered[at] = (altered[at] as number) ^ change;
      assert.throws(
        () => {
          const { lines } = parseLedger(altered, 'altered');
          // A byte may become one that JSON does not mind (a space for a space): then the records are the same.
          assert.deepEqual(file(lines.map((line) => line.record)), whole);
          assert.deepEqual(altered, whole);
        },
        failure('StoreCorrupt', /altered, line [123]: /),
      );
    }),
  );
});

test('a disk that fails is LedgerFailed', async () => {
  await assert.rejects(Ledger.open('/dev/null/ledger'), failure('LedgerFailed', /ENOTDIR/));
});
