import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { NativeConnection, Worker } from '@temporalio/worker';
import { z } from 'zod';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { makeControlActivities } from '../../activities/control.ts';
import { makeEvaluateActivities } from '../../activities/evaluate.ts';
import { bash, defineHandler } from '../../activities/handlers/kit.ts';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { makeInitActivities } from '../../activities/init.ts';
import { makeRunActivities } from '../../activities/run.ts';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { readTrajectory, TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { RolloutClient } from '../../client/rollout-client.ts';
import { loadTools } from '../../config/tools.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import { controlQueue, evalQueue, initQueue, RECORDS_QUEUE, runQueue } from '../../contracts/queues.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { until } from '../durability/support.ts';
import { hostOptions, temporaryFolder } from '../sandbox/support.ts';
import { type PoolService, startPoolService } from './support.ts';
import { type VersionedServer, versionsByToken } from './versioned-server.ts';

const ROLLOUTS = 32;

let service: PoolService;
before(async () => {
  service = await startPoolService();
});
after(() => service?.stop());

const entry = ({ url }: VersionedServer, policyVersion: number): LlmServer => ({
  url,
  dialect: 'vllm',
  policyVersion,
  tokenizer: service.world.folder,
});

/** An agent that calls its shell until its servers have it finish. */
const handler = defineHandler({
  name: 'idle',
  description: 'Call the shell.',
  schema: z.object({}),
  example: {},
  tools: () => [bash],
  prompt: async () => [{ role: 'user', content: 'Go on.' }],
  evaluate: async () => ({ total: 1, parts: { done: 1 } }),
});

/** All stages with real sandboxes; the run stage samples from the pool. */
async function startStages(t: Parameters<PoolService['join']>[0], pool: string) {
  const stateDir = temporaryFolder(t);
  const connection = await NativeConnection.connect({ address: service.address });
  const host = await startSandboxHost(hostOptions(stateDir, 'process', ROLLOUTS));
  const sandboxes = new SandboxClient(host);
  const store = new TrajectoryStore(path.join(stateDir, 'store'));
  const handlers = new HandlerRegistry([handler as never]);
  const { view } = await service.join(t, pool);
  const { evaluate, conclude } = makeEvaluateActivities({ handlers, store, sandboxes });
  const run = makeRunActivities({ handlers, sandboxes, policies: view, parser: fenced, store });
  const queues = {
    [initQueue()]: makeInitActivities({ handlers, sandboxes, host: loadTools(), store }),
    [runQueue('test-host')]: run,
    [evalQueue()]: { evaluate },
    [RECORDS_QUEUE]: { conclude },
    [controlQueue('test-host')]: makeControlActivities({ sandboxes, store }),
  };
  const workers: Worker[] = [];
  for (const [taskQueue, activities] of Object.entries(queues)) {
    workers.push(await Worker.create({ connection, taskQueue, activities, shutdownForceTime: '2s' }));
  }
  const ended = workers.map((worker) => worker.run());
  t.after(async () => {
    for (const worker of workers) worker.shutdown();
    await Promise.all(ended);
    await sandboxes.close();
    await host.close();
    await connection.close();
  });
}

async function startRollouts(
  client: RolloutClient,
  name: string,
  count: number,
  more: { serverLabel?: string } = {},
): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, n) => `${name}-${n}`);
  const limits = { maxTurns: 10_000, maxTotalTokens: 90_000 };
  for (const rolloutId of ids) {
    await client.start({ rolloutId, task: { handler: 'idle', id: rolloutId, data: {} }, limits, ...more });
  }
  return ids;
}

test('weights are swapped in each mode while 32 rollouts run: none begins on the old ones, each token has its version', async (t) => {
  const { world } = service;
  const [a, b] = [await service.server(t, 0), await service.server(t, 0)];
  const client = await service.client(t, 'swaps');
  await startStages(t, 'swaps');
  for (const one of [a, b]) await client.pool.add({ server: entry(one, 0) });
  const ids = await startRollouts(client, 'swapped', ROLLOUTS);
  await until(() => a.open + b.open >= ROLLOUTS / 2, 'they sample');

  /** From now on no request may begin on anything but this version. */
  const from: { at: number; version: number }[] = [];
  const goOn = async (version: number) => {
    const at = world.begun.length;
    from.push({ at, version });
    await until(() => world.begun.length > at + ROLLOUTS, `they go on under ${version}`);
  };
  for (const [mode, version] of [
    ['abort', 1],
    ['drain', 2],
    ['inFlight', 3],
  ] as const) {
    const report = await client.pool.swap({ mode, version, folder: `/weights/${version}` });
    await goOn(version);
    assert.deepEqual([report.failed, report.silent, report.drained], [[], [], true], mode);
    for (const { server, state } of report.state.members) {
      assert.deepEqual([server.policyVersion, state], [version, 'active'], mode);
    }
  }

  b.broken = 'the file is damaged';
  const partly = await client.pool.swap({ mode: 'abort', version: 4, folder: '/weights/4' });
  const atFailure = world.begun.length;
  await goOn(4);
  assert.deepEqual(
    partly.failed.map(({ url }) => url),
    [b.url],
  );
  assert.match(partly.failed[0]?.why ?? '', /the file is damaged/);
  assert.equal(partly.state.members.find(({ server }) => server.url === b.url)?.state, 'out');
  assert.ok(!world.begun.slice(atFailure).some(({ url }) => url === b.url), 'the one that failed is out');

  const [c, unlike] = [await service.server(t, 5), await service.server(t, 6)];
  const servers = [entry(c, 5), entry(unlike, 5)];
  const replaced = await client.pool.swap({ mode: 'blueGreen', version: 5, servers });
  await goOn(5);
  assert.match(replaced.failed[0]?.why ?? '', /the server itself says 6, not 5/);
  assert.deepEqual(
    replaced.state.members.map(({ server }) => server.url),
    [c.url],
  );
  assert.equal(a.open + b.open, 0, 'the old ones have nothing under way');

  world.finishing = true;
  const results = await Promise.all(ids.map((id) => client.result(id)));
  assert.deepEqual([...new Set(results.map(({ outcome }) => outcome))], ['completed']);
  for (const [index, { at, version }] of from.entries()) {
    const until = from[index + 1]?.at ?? world.begun.length;
    const begun = world.begun.slice(at, until).map((request) => request.version);
    assert.ok(Math.min(...begun) >= version, `a request began under ${Math.min(...begun)} after ${version}`);
  }
  const said = await versionsByToken(world.tokenizer);
  const mixed = { turns: 0, requests: 0 };
  for (const { trajectory } of results) {
    assert.ok(trajectory);
    const [line] = await readTrajectory(trajectory);
    assert.ok(line);
    for (const [position, id] of line.output_ids.entries()) {
      const told = said.get(id);
      if (line.loss_mask[position] !== 1 || told === undefined) continue;
      assert.equal(line.policy_versions[position], told);
    }
    const turns = new Map<number, Set<number>>();
    for (const { turn, sampled } of line.turns) {
      const versions = turns.get(turn) ?? new Set<number>();
      if (new Set(line.policy_versions.slice(...sampled)).size > 1) mixed.requests++;
      for (const one of line.policy_versions.slice(...sampled)) versions.add(one);
      turns.set(turn, versions);
    }
    mixed.turns += [...turns.values()].filter((versions) => versions.size > 1).length;
  }
  assert.ok(mixed.requests > 0, 'weights were loaded under requests');
  assert.ok(mixed.turns > mixed.requests, 'and turns that were broken off went on under the next version');
});

test('a floor ends every rollout with an older token at once; a request names the servers that it wants', async (t) => {
  const { world } = service;
  world.finishing = false;
  const one = await service.server(t, 7);
  const client = await service.client(t, 'floors');
  await startStages(t, 'floors');
  await client.pool.add({ server: entry(one, 7) });
  const old = await startRollouts(client, 'old', 3);
  const since = world.begun.length;
  await until(() => world.begun.length > since + 9, 'they sample');
  await assert.rejects(client.pool.raiseFloor(8), { type: 'InvalidRequest', message: /samples with 7/ });
  await client.pool.swap({ mode: 'abort', version: 8, folder: '/weights/8' });
  const { state } = await client.pool.raiseFloor(8);
  assert.equal(state.floor, 8);
  for (const id of old) {
    const { outcome, cancel, trajectory, policyVersions } = await client.result(id);
    assert.deepEqual([outcome, cancel?.reason], ['cancelled', 'stale']);
    assert.equal(policyVersions?.[0], 7);
    assert.ok(trajectory, 'what it sampled is kept');
  }
  await assert.rejects(client.pool.raiseFloor(7), { type: 'InvalidRequest', message: /only raised/ });
  await client.pool.label({ url: one.url, labels: ['h100'] });
  const [fresh] = await startRollouts(client, 'fresh', 1, { serverLabel: 'h100' });
  world.finishing = true;
  assert.equal((await client.result(fresh as string)).outcome, 'completed');
});
