import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import { RolloutError } from '../../contracts/failures.ts';
import { EncryptionCodec } from '../../temporal-config/encryption/codec.ts';
import { addKey, readKeys, useKey } from '../../temporal-config/encryption/keys.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'keys-'));
after(() => rmSync(folder, { recursive: true }));

let files = 0;
function keysFile(...ids: string[]): string {
  const file = path.join(folder, `${++files}.json`);
  for (const id of ids) addKey(file, id);
  return file;
}
const codecOf = (file: string) => new EncryptionCodec(readKeys(file));
const payloadOf = (value: unknown): Payload => defaultPayloadConverter.toPayload(value) as Payload;
const opened = (payload: Payload | undefined) => defaultPayloadConverter.fromPayload(payload as Payload);
const unreadable = (message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof RolloutError && error.type === 'PayloadUnreadable', String(error));
  assert.match(error.message, message);
  return true;
};

test('what is encrypted comes back, is not readable, and never looks the same', async () => {
  const codec = codecOf(keysFile('a'));
  const value = { question: 'How many moons has Mars?', more: [1, null, 'ä'] };
  const [one, two] = await codec.encode([payloadOf(value), payloadOf(value)]);
  assert.equal(Buffer.from(one?.metadata?.encoding ?? []).toString(), 'binary/encrypted');
  assert.ok(!Buffer.from(one?.data ?? []).includes('moons'));
  assert.notDeepEqual(one?.data, two?.data);
  assert.deepEqual((await codec.decode([one as Payload, two as Payload])).map(opened), [value, value]);
});

test('an old key still opens what it encrypted after the next one encrypts', async () => {
  const file = keysFile('old');
  const before = await codecOf(file).encode([payloadOf('first')]);
  addKey(file, 'new');
  assert.equal(readKeys(file).encrypting.id, 'old');
  useKey(file, 'new');
  const codec = codecOf(file);
  const [after] = await codec.encode([payloadOf('second')]);
  assert.equal(Buffer.from(after?.metadata?.['encryption-key-id'] ?? []).toString(), 'new');
  assert.deepEqual((await codec.decode([...before, after as Payload])).map(opened), ['first', 'second']);
});

test('a payload that cannot be opened is a failure of its own type that names the setting', async () => {
  const [payload] = await codecOf(keysFile('a')).encode([payloadOf('secret')]);
  const sealed = [payload as Payload];
  await assert.rejects(
    codecOf(keysFile('b')).decode(sealed),
    unreadable(/with key a: the file of temporal\.encryptionKeys has no key a/),
  );
  await assert.rejects(
    new EncryptionCodec(undefined).decode(sealed),
    unreadable(/temporal\.encryptionKeys is not set here/),
  );
  await assert.rejects(codecOf(keysFile('a')).decode(sealed), unreadable(/another key of this name/));
});

test('a payload that was changed, or says another key, is not opened', async () => {
  const file = keysFile('a', 'b');
  const codec = codecOf(file);
  const [payload] = await codec.encode([payloadOf('secret')]);
  for (const place of [0, 14, -1]) {
    const data = Buffer.from(payload?.data ?? []);
    const at = place < 0 ? data.length + place : place;
    data[at] = (data[at] ?? 0) ^ 1;
    await assert.rejects(codec.decode([{ ...payload, data }]), unreadable(/was changed/));
  }
  const short = { ...payload, data: Buffer.from('short') };
  await assert.rejects(codec.decode([short]), unreadable(/was changed/));
  const metadata = { ...payload?.metadata, 'encryption-key-id': Buffer.from('b') };
  await assert.rejects(codec.decode([{ ...payload, metadata }]), unreadable(/does not open it/));
});

test('without keys, and for what is in the clear, payloads are as they were', async () => {
  const clear = [payloadOf({ a: 1 })];
  assert.equal(await new EncryptionCodec(undefined).encode(clear), clear);
  assert.deepEqual(await codecOf(keysFile('a')).decode(clear), clear);
});

test('a bad file of keys is refused by its name, without its keys', () => {
  const refused = (file: string, message: RegExp) =>
    assert.throws(
      () => readKeys(file),
      (error: Error) => {
        assert.match(error.message, /^temporal\.encryptionKeys: \//);
        assert.match(error.message, message);
        assert.ok(!error.message.includes('c2VjcmV0'));
        return true;
      },
    );
  const file = keysFile('a');
  assert.equal(statSync(file).mode & 0o777, 0o600);
  chmodSync(file, 0o644);
  refused(file, /may be read by every user/);
  refused(path.join(folder, 'none'), /no such file/);
  const bad = path.join(folder, 'bad.json');
  const write = (text: string) => writeFileSync(bad, text, { mode: 0o600 });
  write('c2VjcmV0');
  refused(bad, /is no JSON/);
  write('[]');
  refused(bad, /bad\.json/);
  write('[{"id": "a", "key": "c2VjcmV0"}]');
  refused(bad, /0\.key: a key has 32 bytes/);
  const [key] = JSON.parse(readFileSync(keysFile('x'), 'utf8'));
  write(JSON.stringify([key, key]));
  refused(bad, /two keys have the same id/);
  assert.throws(() => useKey(keysFile('a'), 'z'), /has no key z; there are a/);
  assert.throws(() => addKey(keysFile('a', 'b'), 'b'), /two keys have the same id/);
});
