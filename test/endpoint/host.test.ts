import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, readdirSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { test } from 'node:test';
import { ENDPOINT_SOCKET, Endpoint } from '../../workers/sandbox-host/endpoint/endpoint.ts';
import { BACKENDS, Box, failure, startHost, temporaryFolder } from '../sandbox/support.ts';

/** Sends a request to a socket of the host, as a program inside would. */
function send(
  socketPath: string,
  url: string,
  body?: string | Buffer,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const method = body === undefined ? 'GET' : 'POST';
    const request = http.request({ socketPath, path: url, method, agent: false }, async (answer) => {
      let text = '';
      for await (const chunk of answer) text += chunk;
      resolve({ status: answer.statusCode ?? 0, text });
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** A sandbox with its endpoint open, and where its socket is on the host. */
async function opened(t: Parameters<typeof startHost>[0]) {
  const { client, stateDir } = await startHost(t);
  const { info } = await Box.create(client);
  const { sandboxId, fence } = info;
  await client.openEndpoint(sandboxId, { fence, model: 'tiny' });
  const socket = path.join(stateDir, 'host', 'sandboxes', sandboxId, 'control', ENDPOINT_SOCKET);
  return { client, sandboxId, fence, socket };
}

test('a call waits for whoever holds the sandbox, and a new holder hears of it again', async (t) => {
  const { client, sandboxId, fence, socket } = await opened(t);
  const answer = send(socket, '/v1/chat/completions?x=1', '{"é":1}');
  const first = await client.nextAtEndpoint(sandboxId, fence);
  assert.ok(first?.event === 'call');
  assert.equal(first.body, '{"é":1}');
  const waiting = client.nextAtEndpoint(sandboxId, fence);
  waiting.catch(() => {});
  const { info } = await client.attach(sandboxId, { workflowRunId: 'run-1', attempt: 1 });
  await assert.rejects(waiting, failure('FenceRefused'));
  const late = { fence, id: first.id, status: 200, contentType: 'application/json', body: 'late' } as const;
  await assert.rejects(client.answerAtEndpoint(sandboxId, late), failure('FenceRefused'));
  assert.deepEqual(await client.nextAtEndpoint(sandboxId, info.fence), first);
  const right = { ...late, fence: info.fence, body: 'right' };
  assert.deepEqual(await client.answerAtEndpoint(sandboxId, right), { delivered: true });
  assert.deepEqual(await answer, { status: 200, text: 'right' });
  assert.deepEqual(await client.answerAtEndpoint(sandboxId, right), { delivered: false });
});

test('the holder hears of a call that is given up', async (t) => {
  const { client, sandboxId, fence, socket } = await opened(t);
  const request = http.request({
    socketPath: socket,
    path: '/v1/chat/completions',
    method: 'POST',
    agent: false,
  });
  request.on('error', () => {});
  request.end('{}');
  const call = await client.nextAtEndpoint(sandboxId, fence);
  assert.equal(call?.event, 'call');
  request.destroy();
  assert.deepEqual(await client.nextAtEndpoint(sandboxId, fence), { event: 'gone', id: call?.id });
});

test('a hostile program gets no more of the host than its share', async (t) => {
  const { socket } = await opened(t);
  const told = async (url: string, body?: string | Buffer) => {
    const { status, text } = await send(socket, url, body);
    return [status, JSON.parse(text).error?.code];
  };
  assert.deepEqual(await told('/v1/models'), [200, undefined]);
  assert.deepEqual(await told('/v1/files'), [404, 'not_found']);
  assert.deepEqual(await told('/v1/chat/completions'), [404, 'not_found']);
  assert.deepEqual(await told('/v1/chat/completions', Buffer.alloc(5 * 1024 ** 2)), [
    413,
    'request_too_large',
  ]);
  // No more calls than may wait at once, nor bytes of them.
  const large = Buffer.alloc(3.9 * 1024 ** 2, ' ');
  const held = [1, 2, 3, 4, 5].map(() => told('/v1/chat/completions', large));
  assert.deepEqual(await Promise.race(held), [429, 'rate_limit_exceeded']);
  const small = Array.from({ length: 20 }, () => told('/v1/chat/completions', '{}'));
  assert.deepEqual(await Promise.race(small), [429, 'rate_limit_exceeded']);
  for (const one of [...held, ...small]) one.catch(() => {}); // broken off with the sandbox
  // Nor connections.
  const sockets = Array.from({ length: 80 }, () => net.connect(socket).on('error', () => {}));
  await Promise.race(sockets.map((one) => once(one, 'close')));
  for (const one of sockets) one.destroy();
});

test('a sandbox sees its own endpoint and no other, on every backend', async (t) => {
  for (const backend of BACKENDS) {
    const { client } = await startHost(t, backend);
    const [one, two] = [await Box.create(client), await Box.create(client)];
    for (const { info } of [one, two]) {
      await client.openEndpoint(info.sandboxId, { fence: info.fence, model: info.sandboxId });
    }
    const { socketPath } = await client.openEndpoint(one.info.sandboxId, {
      fence: one.info.fence,
      model: 'is open',
    });
    const ask = `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'GET /v1/models HTTP/1.0\\r\\n\\r\\n')
print(s.makefile().read())`;
    const { stdout, stderr } = await one.exec(['python3', '-c', ask, socketPath]);
    assert.match(stdout.text, new RegExp(one.info.sandboxId), `${backend}: ${stderr.text}`);
    if (backend === 'process') continue; // isolates nothing
    const found = await one.exec(['/usr/bin/find', '/run', '/tmp', '/var', '/workspace', '-type', 's']);
    assert.equal(found.stdout.text.trim(), socketPath);
  }
});

test('the socket’s path on the host may be longer than a socket’s address', async (t) => {
  const folder = path.join(temporaryFolder(t), 'a'.repeat(120));
  mkdirSync(folder);
  const endpoint = await Endpoint.open(folder, 'tiny');
  assert.deepEqual(readdirSync(folder), [ENDPOINT_SOCKET]);
  await endpoint.close();
  assert.deepEqual(readdirSync(folder), []);
});
