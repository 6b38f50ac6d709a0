import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { Client } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { NativeConnection, Worker } from '@temporalio/worker';
import type { FastifyBaseLogger } from 'fastify';
import { pino } from 'pino';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { RolloutError } from '../../contracts/failures.ts';
import { controlQueue, runQueue } from '../../contracts/queues.ts';
import type { Tokens } from '../../gateway/auth.ts';
import { makeCodecServer } from '../../gateway/codec-server/app.ts';
import { EncryptionCodec } from '../../temporal-config/encryption/codec.ts';
import { dataConverterOf } from '../../temporal-config/encryption/data-converter.ts';
import { addKey, readKeys } from '../../temporal-config/encryption/keys.ts';
import { workflowBundle } from '../support/workflows.ts';
import { fail, placement, report, untilCancelled } from '../workflows/scripted.ts';
import { scriptedService } from '../workflows/scripted-service.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'encryption-'));
after(() => rmSync(folder, { recursive: true }));
const [keys, otherKeys] = ['keys', 'other'].map((name) => {
  const file = path.join(folder, `${name}.json`);
  addKey(file, name);
  return file;
}) as [string, string];
const service = scriptedService(undefined, undefined, keys);

/** Every text of a rollout that nobody but its owners may read carries this word. */
const SECRET = 'xyzzy-plugh';
const input = (rolloutId: string) => ({
  rolloutId,
  task: {
    handler: 'math',
    id: 'plain-task',
    data: { question: `What is ${SECRET}?`, answer: `#### ${SECRET}` },
  },
  attempts: { stage: 1 },
});

/** A history as whoever has no key gets it from the server. */
async function rawHistory(rolloutId: string) {
  return new Client({ connection: service.client.temporal.connection }).workflow
    .getHandle(rolloutId)
    .fetchHistory();
}

/** A history as JSON with every payload's bytes as text. */
async function readable(rolloutId: string): Promise<string> {
  const history = historyToJSON(await rawHistory(rolloutId));
  return history.replace(/"data": ?"([^"]*)"/g, (_, data: string) =>
    Buffer.from(data, 'base64').toString('latin1'),
  );
}

function databaseBytes(): Buffer {
  const at = path.dirname(service.databaseFile);
  return Buffer.concat(readdirSync(at).map((name) => readFileSync(path.join(at, name))));
}

test('neither histories nor the database show prompts, answers, or what failed; all works, and replays', async () => {
  service.workers.script.init = async ({ attempt }) =>
    attempt === 1 ? fail('SandboxLost', `lost while it thought of ${SECRET}`) : placement;
  const ended = await service.client.execute(input('sealed'));
  assert.deepEqual([ended.outcome, ended.reward?.total], ['completed', 0.5]);
  assert.match(ended.retried[0]?.message ?? '', new RegExp(SECRET));

  service.workers.script.init = async () => fail('HandlerFailed', `cannot prepare ${SECRET}`);
  const failed = await service.client.execute(input('failed'));
  assert.match(failed.failure?.message ?? '', new RegExp(SECRET));

  for (const id of ['sealed', 'failed']) {
    const text = await readable(id);
    assert.ok(!text.includes(SECRET), id);
    assert.match(text, /Encoded failure/);
    assert.match(text, id === 'sealed' ? /SandboxLost/ : /HandlerFailed/); // types of failures stay readable
  }
  const bytes = databaseBytes();
  assert.ok(bytes.includes('plain-task')); // search attributes are never encrypted: this looks at the right files
  assert.ok(!bytes.includes(SECRET));

  const dataConverter = dataConverterOf(
    loadConfig({ env: {}, flags: { temporal: { encryptionKeys: keys } } }),
  );
  const bundle = await workflowBundle(dataConverter);
  const replay = { workflowBundle: bundle, dataConverter };
  await Worker.runReplayHistory(replay, await rawHistory('sealed'), 'sealed');
});

test('a rollout that was terminated is told from its encrypted history', async () => {
  let begun!: () => void;
  const running = new Promise<void>((resolve) => {
    begun = resolve;
  });
  service.workers.script.run = () => {
    begun();
    return untilCancelled();
  };
  await service.client.start(input('terminated'));
  await running;
  await service.client.temporal.workflow.getHandle('terminated').terminate();
  const { failure, host } = await service.client.result('terminated');
  assert.deepEqual([failure?.type, failure?.stage, host], ['Terminated', 'run', placement.host]);
});

test('without the key, or with another one, nothing is read, and the failure names the setting', async () => {
  const temporal = { address: service.address };
  for (const [encryptionKeys, says] of [
    [undefined, /temporal\.encryptionKeys is not set here/],
    [otherKeys, /the file of temporal\.encryptionKeys has no key keys/],
  ] as const) {
    const stranger = await RolloutClient.connect(
      loadConfig({ env: {}, flags: { temporal: { ...temporal, encryptionKeys } } }),
    );
    await assert.rejects(stranger.result('sealed'), (error: unknown) => {
      assert.ok(error instanceof RolloutError && error.type === 'PayloadUnreadable', String(error));
      assert.match(error.message, says);
      return true;
    });
    await stranger.close();
  }
});

test('a worker that lacks the key fails its stage with that type; the rollout says so', async () => {
  const connection = await NativeConnection.connect({ address: service.address });
  const worker = await Worker.create({
    connection,
    taskQueue: runQueue('keyless'),
    activities: { run: async () => report },
    dataConverter: { payloadCodecs: [new EncryptionCodec(undefined)] },
  });
  const running = worker.run();
  const elsewhere = { host: 'keyless', runQueue: runQueue('keyless'), controlQueue: controlQueue('host-a') };
  service.workers.script.init = async () => ({ ...placement, ...elsewhere });
  const { outcome, failure } = await service.client.execute(input('keyless'));
  assert.deepEqual([outcome, failure?.type, failure?.stage], ['failed', 'PayloadUnreadable', 'run']);
  assert.match(failure?.message ?? '', /temporal\.encryptionKeys is not set here/);
  worker.shutdown();
  await running;
  await connection.close();
});

test('the codec server opens payloads of a history for pages and tools that may ask, and for nobody else', async (t) => {
  const page = 'https://temporal.example.org';
  const tokens: Tokens = {
    find: (token) => (token === 'let-me-in' ? { name: 'ui', scopes: ['read'] } : undefined),
  };
  const app = await makeCodecServer({
    codec: new EncryptionCodec(readKeys(keys)),
    origins: [`${page}/`],
    tokens,
    log: pino({ level: 'silent' }) as FastifyBaseLogger,
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  t.after(() => app.close());
  const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
  const call = (way: string, body: unknown, headers: Record<string, string> = {}) =>
    fetch(`${url}/${way}`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', authorization: 'Bearer let-me-in', ...headers },
    });

  const { events } = JSON.parse(historyToJSON(await rawHistory('sealed')));
  const { payloads } = events[0].workflowExecutionStartedEventAttributes.input;
  const answer = await call('decode', { payloads }, { origin: page, 'x-namespace': 'default' });
  assert.deepEqual([answer.status, answer.headers.get('access-control-allow-origin')], [200, page]);
  const opened = (await answer.json()) as { payloads: { metadata: { encoding: string }; data: string }[] };
  const text = (base64: string | undefined) => Buffer.from(base64 ?? '', 'base64').toString();
  assert.equal(text(opened.payloads[0]?.metadata.encoding), 'json/plain');
  assert.match(JSON.parse(text(opened.payloads[0]?.data)).task.data.question, new RegExp(SECRET));

  assert.equal((await call('decode', { payloads }, { authorization: '' })).status, 401);
  assert.equal((await call('encode', opened)).status, 403); // its token may only read
  const foreign = await call('decode', { payloads }, { origin: 'https://evil.example.org' });
  assert.deepEqual([foreign.status, (await foreign.text()).includes('payloads')], [403, false]);
  assert.equal((await call('decode', { payloads: [{ data: '§' }] })).status, 422);
  const asked = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'content-type' };
  const preflight = await fetch(`${url}/decode`, { method: 'OPTIONS', headers: { origin: page, ...asked } });
  assert.equal(preflight.status, 204);
  assert.match(preflight.headers.get('access-control-allow-headers') ?? '', /x-namespace/);
});
