// Part of `npm run test:production`: while rollouts run, databases and store are copied as docs/operations.md says. What they ran on
// is then taken away whole, the copies are restored, and another machine goes on: every rollout that was open at the backup
// comes to its end once, and what had ended stays as it was.
import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { Cluster } from '../../chaos/cluster.ts';
import { Fleet } from '../../chaos/fleet.ts';
import { takeOwnMounts } from '../../chaos/own-mounts.ts';
import { PolicyServer } from '../../chaos/policy-server.ts';
import { patiently } from '../../chaos/round.ts';
import type { ChaosTask } from '../../chaos/tasks.ts';
import { type ProductionServer, readProduction } from '../../chaos/temporal.ts';
import { run } from '../setup/lib/command.mjs';

takeOwnMounts();

const DATABASES = ['temporal', 'temporal_visibility'];
const PATIENCE_MS = 900_000;
/** Milliseconds between two parts of an answer, and tokens of each: at the backup no rollout is to end. */
const SLOW = { tokens: 8, ms: 1000 };
const FAST = { tokens: 1000, ms: 0 };

const { values } = parseArgs({ options: { production: { type: 'string' }, apart: { type: 'boolean' } } });
const production = readProduction(values.production) as ProductionServer;
const folder = await mkdtemp(path.join(os.tmpdir(), 're-'));
const copy = path.join(folder, 'store-copy');
const policy = await PolicyServer.start();
const tasksOf = (count: number) =>
  Array.from({ length: count }, (_, index): ChaosTask => {
    return { name: `t${index}`, kind: 'usual', turns: 5 + (index % 3) };
  });

/** Everything on one machine of this name, on the databases that there are. */
function clusterOn(host: string, storeFrom?: string): Promise<Cluster> {
  return Cluster.start({
    ...{ root: path.join(folder, host), hosts: [host], capacity: 8, llmUrl: policy.url, production },
    silentLlmSeconds: 60,
    ...(storeFrom === undefined ? {} : { storeFrom }),
  });
}

/** One of PostgreSQL's programs. */
async function postgres(program: string, ...args: string[]): Promise<void> {
  const { sqlPort, sqlPassword } = production;
  const env = { ...process.env, PGPASSWORD: sqlPassword };
  const at = ['--host', '127.0.0.1', '--port', String(sqlPort), '--username', 'temporal'];
  await run(program, [...at, ...args], { env, timeoutMs: 300_000 });
}

const dumpOf = (database: string) => path.join(folder, `${database}.dump`);

/** The records that a store has, by rollout. */
async function recordsIn(store: string, rolloutIds: readonly string[]) {
  const records = new Map<string, unknown>();
  for (const rolloutId of rolloutIds) {
    const record = await new TrajectoryStore(store).getTerminal(rolloutId);
    if (record) records.set(rolloutId, record);
  }
  return records;
}

/** Until the backup, and on until the machine is gone. @returns what the copy of the store has of each rollout */
async function before(): Promise<Map<string, unknown>> {
  const cluster = await clusterOn('a');
  try {
    const ended = new Fleet(cluster.client, 'ended', tasksOf(2));
    await patiently(cluster, ended, PATIENCE_MS, ended.fly(0));
    policy.served.length = 0;
    policy.pace = SLOW;
    const open = new Fleet(cluster.client, 'open', tasksOf(6));
    const flying = open.fly(0);
    const turnsOf = (name: string) => policy.served.filter(({ task }) => task === name).length;
    const work = async () => {
      while (open.flights.some(({ task }) => turnsOf(task.name) < 2)) await delay(200);
      assert.equal(open.open.length, 6, 'all are at work');
      for (const name of DATABASES)
        await postgres('pg_dump', '--format=custom', `--file=${dumpOf(name)}`, name);
      // One ends between the copies; the others, after them, in a world that will not have been.
      policy.pace = FAST;
      while (open.open.length === 6) await delay(20);
      await cp(cluster.store.folder, copy, { recursive: true });
      console.log(`databases and store are copied; ${open.open.length} of 6 rollouts are open`);
      await flying;
    };
    await patiently(cluster, open, PATIENCE_MS, work());
    await cluster.client.close();
    return recordsIn(
      copy,
      [...ended.flights, ...open.flights].map(({ rolloutId }) => rolloutId),
    );
  } finally {
    await cluster.stop();
  }
}

/** From the copies on, on another machine. */
async function afterwards(kept: ReadonlyMap<string, unknown>): Promise<void> {
  const cluster = await clusterOn('b', copy);
  try {
    // Known, so none begins: it waits for those that were open.
    const open = new Fleet(cluster.client, 'open', tasksOf(6));
    await patiently(cluster, open, PATIENCE_MS, open.fly(0));
    const again = open.flights.filter(({ result }) => (result?.attempt ?? 0) > 1);
    for (const { rolloutId, result } of open.flights) {
      assert.equal(result?.outcome, 'completed', rolloutId);
      if (kept.has(rolloutId)) assert.deepEqual(result, kept.get(rolloutId), 'its record stands');
      else assert.ok(result?.host === 'b' && result.attempt > 1, `${rolloutId} has begun again`);
    }
    for (const rolloutId of ['ended-t0', 'ended-t1']) {
      assert.deepEqual(await cluster.client.result(rolloutId), kept.get(rolloutId));
    }
    const all = [...kept.keys(), ...open.flights.map(({ rolloutId }) => rolloutId)];
    const records = await recordsIn(cluster.store.folder, all);
    assert.equal(records.size, 8, 'one record each');
    const later = new Fleet(cluster.client, 'later', tasksOf(1));
    await patiently(cluster, later, PATIENCE_MS, later.fly(0));
    console.log(
      `all 6 have ended, ${again.length} as another attempt; what had ended stands; a new one has run`,
    );
    await cluster.client.close();
  } finally {
    await cluster.stop();
  }
}

try {
  const kept = await before();
  for (const name of DATABASES) {
    await postgres('dropdb', name);
    await postgres('createdb', name);
    await postgres('pg_restore', '--exit-on-error', `--dbname=${name}`, dumpOf(name));
  }
  await afterwards(kept);
} finally {
  await policy.close();
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);
