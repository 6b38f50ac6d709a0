import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { LlmServer } from '../../contracts/llm.ts';
import { poolWorkflowId } from '../../contracts/pool.ts';
import { seedPool } from '../../workers/pool/seed.ts';
import { until } from '../durability/support.ts';
import { freePort } from '../support/temporal.ts';
import { keepHistory } from '../workflows/kept.ts';
import { type PoolService, startPoolService } from './support.ts';

let service: PoolService;
before(async () => {
  service = await startPoolService();
});
after(() => service?.stop());

const entry = ({ url }: { url: string }, policyVersion = 0): LlmServer => ({
  url,
  dialect: 'vllm',
  policyVersion,
  tokenizer: service.world.folder,
});

const refused = (type: string, message: RegExp) => ({ type, message });

test('what a server is is found out when it is added, and what differs is said', async (t) => {
  const client = await service.client(t, 'adding');
  await service.join(t, 'adding');
  const one = await service.server(t, 0);
  const { state } = await client.pool.add({ server: { ...entry(one), url: `${one.url}/` } });
  const [member] = state.members;
  assert.deepEqual(
    [
      member?.server.url,
      member?.labels,
      member?.facts.model,
      member?.facts.control,
      member?.facts.tellsVersions,
    ],
    [one.url, ['policy'], 'versioned', true, true],
  );
  const add = (server: object, labels = ['policy']) =>
    client.pool.add({ server: server as LlmServer, labels });

  await assert.rejects(
    add({ ...entry(one), dialect: 'ollama' }),
    refused('InvalidRequest', /server\.dialect.*"sglang"/),
  );
  await assert.rejects(add({ ...entry(one), url: 'gpu-3' }), refused('InvalidRequest', /server\.url/));
  const nobody = { url: `http://127.0.0.1:${await freePort()}` };
  await assert.rejects(add(entry(nobody)), refused('LlmUnreachable', /ECONNREFUSED/));
  await assert.rejects(
    add({ ...entry(one), dialect: 'llama.cpp' }),
    refused('LlmUnreachable', /is no llama\.cpp server/),
  );
  const other = await service.server(t, 0);
  other.model = 'another';
  await assert.rejects(
    add(entry(other)),
    refused('LlmUnsuitable', new RegExp(`${other.url}: model: "another", ${one.url} serves "versioned"`)),
  );
  other.model = 'versioned';
  other.encodesOtherwise = true;
  await assert.rejects(add(entry(other)), refused('LlmUnsuitable', /the tokenizer in .* is not that of/));
  other.encodesOtherwise = false;
  await assert.rejects(
    add(entry(other, 3)),
    refused('LlmUnsuitable', /policyVersion: 3, the others .* with 0/),
  );
  assert.equal((await client.pool.state()).members.length, 1, 'none of them was taken');

  const judge = await service.server(t, 4);
  judge.model = 'another';
  await add(entry(judge, 4), ['judge']);
  await assert.rejects(
    client.pool.label({ url: judge.url, labels: ['judge', 'policy'] }),
    refused('LlmUnsuitable', /policyVersion: 4, the others/),
  );
  await assert.rejects(
    client.pool.drain({ url: 'http://nowhere' }),
    refused('InvalidRequest', /there are: http/),
  );
  await assert.rejects(
    client.pool.swap({ mode: 'abort', version: 3, folder: '/weights/3', label: 'judge' }),
    refused('InvalidRequest', /"judge" samples with 4, and versions only grow/),
  );
  await assert.rejects(
    client.temporal.workflow
      .getHandle(poolWorkflowId('adding'))
      .executeUpdate('add', { args: [{ server: 7 }] }),
    (error: Error) => /server, labels, seeded: /.test(String(error.cause)),
  );
});

test('a server that is drained has nothing under way; removed, it is gone', async (t) => {
  const client = await service.client(t, 'draining');
  const { view } = await service.join(t, 'draining');
  const [one, other] = [await service.server(t, 0), await service.server(t, 0)];
  await client.pool.add({ server: entry(one) });
  const policy = await view.open('r', { signal: new AbortController().signal });
  const promptIds = await policy.renderPrompt([{ role: 'user', content: 'Go on.' }]);
  const request = { promptIds, maxTokens: 50, temperature: 1, topP: 1 };
  const turn = policy.generate(request, new AbortController().signal);
  await until(() => one.open === 1, 'it samples');
  const drained = await client.pool.drain({ url: one.url });
  assert.deepEqual([drained.drained, one.open], [true, 0]);
  assert.ok((await turn).ids.length > 0);
  assert.deepEqual([drained.state.members[0]?.state, drained.state.members[0]?.why], ['draining', 'drained']);
  const waiting = policy.generate(request, new AbortController().signal);
  await client.pool.add({ server: entry(other) });
  assert.equal((await waiting).server, other.url);
  assert.deepEqual(
    (await client.pool.remove(one.url)).state.members.map(({ server }) => server.url),
    [other.url],
  );
  await keepHistory(client, poolWorkflowId('draining'));
});

test('swaps leave a history that later versions of this can replay', async (t) => {
  const client = await service.client(t, 'swapping');
  await service.join(t, 'swapping');
  const one = await service.server(t, 0);
  await client.pool.add({ server: entry(one) });
  for (const [mode, version] of [
    ['abort', 1],
    ['drain', 2],
    ['inFlight', 3],
  ] as const) {
    await client.pool.swap({ mode, version, folder: `/weights/${version}` });
    assert.equal(one.version, version);
  }
  one.broken = 'no such file';
  const { failed, state } = await client.pool.swap({ mode: 'abort', version: 4, folder: '/weights/4' });
  assert.deepEqual(
    failed.map(({ url }) => url),
    [one.url],
  );
  assert.equal(state.members[0]?.state, 'out');
  one.broken = undefined;
  const again = await client.pool.swap({ mode: 'abort', version: 4, folder: '/weights/4' });
  assert.deepEqual(
    [again.failed, again.state.members[0]?.state],
    [[], 'active'],
    'the next swap brings it back',
  );
  // Two at once come one after the other, in either order; the older one may come too late.
  const swapTo = (version: number) =>
    client.pool.swap({ mode: 'abort', version, folder: `/weights/${version}` });
  const [newer] = await Promise.allSettled([swapTo(6), swapTo(5)]);
  assert.equal(newer.status, 'fulfilled');
  assert.equal(one.version, 6);
  assert.equal((await client.pool.state()).members[0]?.server.policyVersion, 6);
  await assert.rejects(swapTo(6), refused('InvalidRequest', /has other weights than 6/));
  await assert.rejects(swapTo(5), refused('InvalidRequest', /versions only grow/));
  const next = await service.server(t, 7);
  await client.pool.swap({ mode: 'blueGreen', version: 7, servers: [entry(next)] });
  await client.pool.raiseFloor(7);
  await keepHistory(client, poolWorkflowId('swapping'));
});

test('the pool outlives its history and even its workflow, and run workers go on', async (t) => {
  const client = await service.client(t, 'long');
  const first = await service.join(t, 'long');
  const one = await service.server(t, 0);
  await client.pool.add({ server: entry(one) });
  await first.leave();
  const handle = client.temporal.workflow.getHandle(poolWorkflowId('long'));
  const { runId } = await handle.describe();
  const { epoch } = await client.pool.state();
  for (let round = 0; round < 7; round++) {
    const label = (n: number) => client.pool.label({ url: one.url, labels: ['policy', `n${n}`] });
    await Promise.all(Array.from({ length: 8 }, (_, n) => label(n)));
  }
  await until(async () => (await handle.describe()).runId !== runId, 'a new history');
  const { view } = await service.join(t, 'long');
  const { state } = await client.pool.label({ url: one.url, labels: ['policy'] });
  assert.equal(state.epoch, epoch + 57, 'nothing is lost on the way');
  await until(
    () => view.lease.state?.epoch === state.epoch && view.lease.isLive(performance.now()),
    'it is told',
  );

  await handle.terminate('by hand');
  await until(async () => (await client.pool.state()).workers.length === 1, 'the worker joins the new one');
  const anew = await client.pool.add({ server: entry(one) });
  assert.ok(anew.state.epoch > state.epoch);
  assert.deepEqual(anew.silent, []);
  assert.equal(view.lease.state?.epoch, anew.state.epoch);
});

test('configured servers of a newer version take the place of what is there, when they are up', async (t) => {
  const client = await service.client(t, 'seeding');
  await service.join(t, 'seeding');
  const first = await service.server(t, 3);
  const said: string[] = [];
  const over = new AbortController();
  t.after(() => over.abort());
  const seed = (servers: LlmServer[]) =>
    seedPool({
      client: client.temporal,
      ...{ input: { pool: 'seeding', leaseSeconds: 30 }, servers, signal: over.signal },
      report: (line) => said.push(line),
    });
  const members = async () =>
    (await client.pool.state()).members.map(({ server, seeded }) => [
      server.url,
      server.policyVersion,
      seeded,
    ]);
  await seed([entry(first, 3)]);
  assert.deepEqual(await members(), [[first.url, 3, true]]);

  // As after a crash between the end of a step and its swap: a server with the new weights, where one of the old was.
  const { port } = new URL(first.url);
  await first.stop();
  await service.server(t, 4, Number(port));
  const url = `http://127.0.0.1:${port}`;
  await seed([entry({ url }, 4)]);
  assert.deepEqual(await members(), [[url, 4, true]]);

  const [second, late] = [await service.server(t, 5), { url: `http://127.0.0.1:${await freePort()}` }];
  await client.pool.swap({ mode: 'blueGreen', version: 5, servers: [entry(second, 5)] });
  const { url: gone } = second;
  await second.stop();
  const seeding = seed([entry(late, 6)]);
  await until(() => said.some((line) => line.startsWith('waiting for an LLM server')), 'the first try');
  assert.deepEqual(await members(), [[gone, 5, false]], 'nothing is given up for what is not there');
  const third = await service.server(t, 6, Number(new URL(late.url).port));
  await seeding;
  assert.deepEqual(await members(), [[third.url, 6, true]]);
  assert.match(said.join(), /servers of policy version 6 take the place of those of version 5/);
});
