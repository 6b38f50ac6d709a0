// Part of `npm run test:production`: a server's databases are dumped as docs/operations.md says, deleted and restored, and a
// rollout that was open is open again, with what it was asked for.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { type ProductionServer, readProduction, startTemporal } from '../../chaos/temporal.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { choosePort } from '../../temporal-config/ports.ts';
import { Processes } from '../../workers/stack/processes.ts';
import { run } from '../setup/lib/command.mjs';

const DATABASES = ['temporal', 'temporal_visibility'];
const REQUEST = {
  rolloutId: 'open-at-the-backup',
  task: { handler: 'math', id: 'kept', data: { question: '1 + 1?', answer: '#### 2' } },
};

const { values } = parseArgs({ options: { production: { type: 'string' } } });
const production = readProduction(values.production) as ProductionServer;
const folder = await mkdtemp(path.join(os.tmpdir(), 'restore-'));
const processes = new Processes(folder);
const port = await choosePort('temporal.port', 28_233, false);

/** Asks a server that runs for as long as this takes. */
async function withServer(work: (client: RolloutClient) => Promise<void>): Promise<void> {
  const server = await startTemporal(processes, folder, { port, uiPort: port + 50 }, production);
  const address = `127.0.0.1:${port}`;
  const client = await RolloutClient.connect(loadConfig({ env: {}, flags: { temporal: { address } } }));
  try {
    await work(client);
  } finally {
    await client.close();
    await server.stop();
  }
}

/** One of PostgreSQL's programs. */
async function postgres(program: string, ...args: string[]): Promise<void> {
  const { sqlPort, sqlPassword } = production;
  const env = { ...process.env, PGPASSWORD: sqlPassword };
  const at = ['--host', '127.0.0.1', '--port', String(sqlPort), '--username', 'temporal'];
  await run(program, [...at, ...args], { env, timeoutMs: 300_000 });
}

try {
  await withServer(async (client) => {
    await client.start(REQUEST);
  });
  for (const name of DATABASES) {
    const dump = path.join(folder, `${name}.dump`);
    await postgres('pg_dump', '--format=custom', `--file=${dump}`, name);
    await postgres('dropdb', name);
    await postgres('createdb', name);
    await postgres('pg_restore', '--exit-on-error', `--dbname=${name}`, dump);
  }
  await withServer(async (client) => {
    assert.equal(await client.isOpen(REQUEST.rolloutId), true);
    const { events } = await client.temporal.workflow.getHandle(REQUEST.rolloutId).fetchHistory();
    const input = events?.[0]?.workflowExecutionStartedEventAttributes?.input?.payloads?.[0]?.data;
    assert.deepEqual(JSON.parse(Buffer.from(input ?? []).toString()).task, REQUEST.task);
    const listed: string[] = [];
    for await (const { rolloutId } of client.list({ taskId: 'kept' })) listed.push(rolloutId);
    assert.deepEqual(listed, [REQUEST.rolloutId]);
    // It takes new ones too.
    await client.start({ ...REQUEST, rolloutId: 'begun-after-the-restore' });
  });
  console.log('a rollout that was open at the backup is open after it was restored');
} finally {
  await rm(folder, { recursive: true, force: true });
}
