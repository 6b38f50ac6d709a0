import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { msToTs } from '@temporalio/common/lib/time.js';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { until } from '../support/until.ts';
import { gate } from '../workflows/kept.ts';
import { placement, untilCancelled } from '../workflows/scripted.ts';
import { served } from './served.ts';

// One partition and one slot: what waits for it stands in one line.
const SERVER = {
  'matching.enableFairness': 'true',
  'matching.numTaskqueueReadPartitions': '1',
  'matching.numTaskqueueWritePartitions': '1',
};
const { service, gateway, token } = served(SERVER, 1);

const task = { handler: 'math', id: 'task-1', data: { question: 'What is 1 + 1?', answer: '#### 2' } };

async function post(url: string, place: string, body: unknown, bearer?: string) {
  const headers = {
    'content-type': 'application/json',
    ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
  };
  const response = await fetch(`${url}${place}`, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, headers: response.headers, body: JSON.parse(await response.text()) };
}

test('a tenant with a long backlog keeps no other waiting, and weights share out what is begun', async () => {
  const names = ['first', 'heavy', 'light'] as const;
  const bearers = new Map<string, string>();
  for (const name of names) bearers.set(name, await token(name, 'write'));
  const { url } = await gateway({ guarded: true, settings: { tenants: { heavy: { weight: 4 } } } });
  const goOn = gate();
  const begun: (string | undefined)[] = [];
  service.workers.script.init = async ({ request }) => {
    begun.push(request.tenant?.name);
    await goOn.passed;
    return placement;
  };
  const ids: string[] = [];
  const submit = async (name: (typeof names)[number], count: number) => {
    for (let at = 0; at < count; at++) {
      const { status, body } = await post(
        url,
        '/v1/rollouts',
        { task, rolloutId: `${name}-${at}`, heartbeatTimeoutSeconds: 60 },
        bearers.get(name),
      );
      assert.equal(status, 202, JSON.stringify(body));
      ids.push(body.rolloutId);
    }
  };
  const waiting = async (id: string) => {
    const { raw } = await service.client.temporal.workflow.getHandle(id).describe();
    return raw.pendingActivities?.length === 1;
  };
  await submit('first', 14);
  await until(async () => (await Promise.all(ids.map(waiting))).every(Boolean), 'its stages are in line');
  await submit('heavy', 8);
  await submit('light', 2);
  await until(async () => (await Promise.all(ids.map(waiting))).every(Boolean), 'all stages are in line');
  goOn.open();
  await Promise.all(ids.map((id) => service.client.result(id)));
  const last = (name: string) => begun.lastIndexOf(name);
  assert.ok(last('light') < 18 && last('heavy') < 18, `others go before the backlog's end: ${begun}`);
  const before = begun.slice(1, last('heavy')).filter((name) => name === 'first').length;
  assert.ok(before <= 6, `four of heavy for each of another: ${begun}`);
});

test('a tenant has no more open than it may, and asks for what it has', async () => {
  const settings = { tenants: { small: { openRollouts: 2 } } };
  const [small, other] = [await token('small', 'read,write'), await token('other', 'admin')];
  const { url } = await gateway({ guarded: true, settings });
  service.workers.script.init = () => untilCancelled();
  const begin = (rolloutId: string, bearer: string, more = {}) =>
    post(url, '/v1/rollouts', { task, rolloutId, ...more }, bearer);
  // At once: none is in Temporal's lists yet.
  const answers = await Promise.all(['s-0', 's-1', 's-2', 's-3'].map((id) => begin(id, small)));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [202, 202, 429, 429]);
  const refused = answers.find(({ status }) => status === 429);
  assert.match(refused?.body.detail, /small has 2 rollouts open, and may have 2/);
  assert.equal(refused?.headers.get('retry-after'), '5');
  const begun = answers.filter(({ status }) => status === 202).map(({ body }) => body.rolloutId);
  assert.equal((await begin(begun[0], small)).status, 202, 'it is there already');
  const group = { task, samples: 2 };
  assert.equal((await post(url, '/v1/groups', group, small)).status, 429);
  assert.equal((await begin('o-0', other)).status, 202, 'others have limits of their own');
  assert.equal((await begin('o-1', other, { tenant: 'small' })).status, 429, 'also on its behalf');
  assert.equal((await begin('x-0', small, { tenant: 'other' })).status, 403);
  const listed = async (): Promise<string[]> => {
    const headers = { authorization: `Bearer ${small}` };
    const response = await fetch(`${url}/v1/rollouts?tenant=small`, { headers });
    const { rollouts } = (await response.json()) as { rollouts: { rolloutId: string }[] };
    return rollouts.map(({ rolloutId }) => rolloutId);
  };
  await until(async () => (await listed()).length === 2, 'the tenant is in the lists');
  assert.deepEqual((await listed()).sort(), begun.sort());
  for (const id of [...begun, 'o-0']) await service.client.cancel(id);
  await until(async () => (await begin('s-4', small)).status === 202, 'there is room again');
  await service.client.cancel('s-4');
});

test('with a certificate it speaks HTTPS, and nothing else', async () => {
  const file = (name: string) => fileURLToPath(new URL(`../fixtures/tls/${name}.pem`, import.meta.url));
  const { url } = await gateway({ settings: { certificate: file('certificate'), key: file('key') } });
  const ask = https.get(`${url}/healthz`, { ca: readFileSync(file('certificate')), agent: false });
  const [response] = await once(ask, 'response');
  assert.equal(response.statusCode, 200);
  response.resume();
  await assert.rejects(fetch(`${url}/healthz`), /fetch failed/, 'nobody vouches for this certificate');
  await assert.rejects(fetch(`${url.replace('https', 'http')}/healthz`), /fetch failed/);
  const half = gateway({ settings: { certificate: file('certificate') } });
  await assert.rejects(half, /gateway.certificate and gateway.key belong together/);
});

test('connections, requests a second, bodies and their arrival have limits', async () => {
  const { url: narrow, app } = await gateway({ settings: { connections: 2 } });
  const { requestTimeout, headersTimeout } = app.server as Server;
  assert.deepEqual([requestTimeout, headersTimeout], [120_000, 60_000]);
  const port = Number(new URL(narrow).port);
  const open = await Promise.all(
    [0, 1].map(async () => {
      const socket = net.connect(port, '127.0.0.1');
      socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
      await once(socket, 'data');
      return socket;
    }),
  );
  await assert.rejects(fetch(`${narrow}/healthz`), /fetch failed/, 'a third connection is closed');
  for (const socket of open) socket.destroy();
  await until(
    () =>
      fetch(`${narrow}/healthz`).then(
        () => true,
        () => false,
      ),
    'there is room again',
  );

  const { url: slow } = await gateway({ settings: { requestsPerSecond: 3, bodyBytes: 1024 } });
  const answers = await Promise.all(Array.from({ length: 40 }, () => fetch(`${slow}/healthz`)));
  const refused = answers.filter(({ status }) => status === 429);
  assert.ok(refused.length > 0 && answers.some(({ status }) => status === 200));
  const [one] = refused as [Response];
  assert.match(one.headers.get('content-type') ?? '', /^application\/problem\+json/);
  assert.ok(Number(one.headers.get('retry-after')) >= 1);
  const large = { task, groupId: 'x'.repeat(2000) };
  let status = 429;
  await until(async () => {
    ({ status } = await post(slow, '/v1/rollouts', large));
    return status !== 429;
  }, 'a request is let through');
  assert.equal(status, 413);
});

test('it is ready when there are workers and hosts', async () => {
  const { url } = await gateway();
  const answer = await fetch(`${url}/readyz`);
  const { detail } = (await answer.json()) as { detail: string };
  assert.deepEqual([answer.status, detail], [503, 'no sandbox host is up']);
  assert.deepEqual(await (await fetch(`${url}/v1/hosts`)).json(), { hosts: [] });
  const { temporal } = service.client;
  const namespace = 'without-workers';
  const workflowExecutionRetentionPeriod = msToTs('1 day');
  await temporal.workflowService.registerNamespace({ namespace, workflowExecutionRetentionPeriod });
  const flags = { temporal: { address: service.address, namespace } };
  const client = await RolloutClient.connect(loadConfig({ env: {}, flags }));
  try {
    let known: boolean | undefined;
    // The server takes its time to know a new namespace everywhere.
    const asked = async () => {
      known = await client.hasWorkflowWorker().catch(() => undefined);
      return known !== undefined;
    };
    await until(asked, 'the namespace is known');
    assert.equal(known, false);
  } finally {
    await client.close();
  }
});
