import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { PROJECT_ROOT } from '../../config/tools.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import { until } from '../durability/support.ts';
import { sampleOn } from './sampling.ts';
import { type PoolService, SHORT_LEASES, startPoolService, startTunnel } from './support.ts';
import type { VersionedServer } from './versioned-server.ts';

let service: PoolService;
before(async () => {
  service = await startPoolService();
});
after(() => service?.stop());

const entry = ({ url }: VersionedServer, policyVersion = 0): LlmServer => ({
  url,
  dialect: 'vllm',
  policyVersion,
  tokenizer: service.world.folder,
});

test('a worker that stands still, one that is cut off and one that joins in the middle cannot begin on the old version', async (t) => {
  const { world, address } = service;
  const stop = new AbortController();
  const sampling: Promise<void>[] = [];
  t.after(async () => {
    stop.abort();
    await Promise.allSettled(sampling);
  });
  const [old, next] = [await service.server(t, 1), await service.server(t, 2)];
  const client = await service.client(t, SHORT_LEASES);
  const tunnel = await startTunnel(address);
  const usual = await service.join(t, SHORT_LEASES);
  const cutOff = await service.join(t, SHORT_LEASES, tunnel.address);
  t.after(() => tunnel.close());
  await client.pool.add({ server: entry(old, 1) });
  sampling.push(sampleOn(usual.view, 'usual', stop.signal), sampleOn(cutOff.view, 'cut-off', stop.signal));
  const sampler = fileURLToPath(new URL('./sampler.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', sampler, address, SHORT_LEASES], {
    cwd: path.resolve(PROJECT_ROOT),
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  t.after(() => child.kill('SIGKILL'));
  await until(async () => (await client.pool.state()).workers.length === 3, 'all three have joined');
  const begun = world.begun.length;
  await until(() => world.begun.length > begun + 20, 'they sample');

  child.kill('SIGSTOP');
  tunnel.cut();
  const swapping = client.pool.swap({ mode: 'blueGreen', version: 2, servers: [entry(next)] });
  await until(async () => (await client.pool.state()).members.length === 2, 'the swap has begun');
  const joiner = await service.join(t, SHORT_LEASES);
  sampling.push(sampleOn(joiner.view, 'joiner', stop.signal));
  const { state, silent, failed } = await swapping;
  const returned = world.begun.length;

  assert.deepEqual(failed, []);
  assert.equal(silent.length, 2, 'the one that stands still and the one that is cut off');
  assert.deepEqual(
    state.members.map(({ server, state: how }) => [server.url, server.policyVersion, how]),
    [[next.url, 2, 'active']],
  );
  assert.equal(cutOff.view.lease.isLive(performance.now()), false);
  child.kill('SIGCONT');
  tunnel.mend();
  await until(async () => (await client.pool.state()).workers.length === 4, 'both have joined again');
  const awake = world.begun.length;
  await until(() => world.begun.length > awake + 50, 'they go on');
  const later = new Set(world.begun.slice(returned).map(({ url }) => url));
  assert.deepEqual([...later], [next.url], 'no request began on the old version');
});

test('leaving is said: a change then waits for nobody', async (t) => {
  const client = await service.client(t, 'leaving');
  const one = await service.server(t, 0);
  await service.join(t, 'leaving');
  const other = await service.join(t, 'leaving');
  await until(async () => (await client.pool.state()).workers.length === 2, 'both have joined');
  await client.pool.add({ server: entry(one) });
  await other.leave();
  assert.equal((await client.pool.state()).workers.length, 1);
  assert.deepEqual((await client.pool.label({ url: one.url, labels: ['policy', 'h100'] })).silent, []);
});
