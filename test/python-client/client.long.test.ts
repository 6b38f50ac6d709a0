import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import { NativeConnection, Worker } from '@temporalio/worker';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { POOL_QUEUE } from '../../contracts/queues.ts';
import type { RunReport } from '../../contracts/stages.ts';
import { pinnedEnvironment } from '../../scripts/setup/lib/environment.mjs';
import { gradeAsTasksSay } from '../gateway/graded.ts';
import { served } from '../gateway/served.ts';
import { FACTS } from '../support/pool.ts';
import { report } from '../workflows/scripted.ts';
import { restartedGateway } from './restarted.ts';

const cleanUp: (() => Promise<void>)[] = [];
// Before the service's own: a worker ends only while its server is there.
after(async () => {
  for (const stop of cleanUp.reverse()) await stop();
});
const { service, store, gateway, token } = served();
const folder = path.join(PROJECT_ROOT, 'clients', 'python');

/** Folders of weights that servers were told to load. */
const loaded: string[] = [];

/** Takes every server for one that serves the same and can load weights. */
async function startPool(): Promise<void> {
  const connection = await NativeConnection.connect({ address: service.address });
  const worker = await Worker.create({
    connection,
    taskQueue: POOL_QUEUE,
    activities: {
      probe: async () => ({ ...FACTS, control: true }),
      loadWeights: async ({ folder }: { folder: string }) => {
        loaded.push(folder);
      },
    },
  });
  const running = worker.run();
  cleanUp.push(async () => {
    worker.shutdown();
    await running;
    await connection.close();
  });
  await service.client.pool.add({ server: { url: 'http://127.0.0.1:9' } });
}

/** An agent whose task says `hold` works until its host is told to pause or to abort it. */
function holdAsTasksSay(): void {
  const held = new Map<string, (report: RunReport) => void>();
  const end = async (sandboxId: string, how: RunReport) => {
    const { cancelled } = Context.current();
    while (!held.has(sandboxId)) await Promise.race([setTimeout(20), cancelled]);
    held.get(sandboxId)?.(how);
    held.delete(sandboxId);
  };
  const { script } = service.workers;
  const init = script.init;
  script.init = async (input) => ({ ...(await init(input)), sandboxId: input.request.rolloutId });
  script.run = async ({ request, placement: { sandboxId } }) => {
    if (request.task.data.hold !== true) return report;
    const context = Context.current();
    const beat = setInterval(() => context.heartbeat(), 100);
    const told = new Promise<RunReport>((resolve) => held.set(sandboxId, resolve));
    try {
      return await Promise.race([told, context.cancelled]);
    } finally {
      clearInterval(beat);
    }
  };
  script.pause = ({ sandboxId }) => end(sandboxId, { ...report, ended: 'paused' });
  script.abort = ({ sandboxId, reason }) =>
    end(
      sandboxId,
      reason === 'runDeadline'
        ? { ...report, ended: 'deadline' }
        : { ...report, ended: 'aborted', cancel: { reason, llmAborted: false, turn: 1 } },
    );
}

test('the Python client does all that the service offers, and loses nothing with it', async () => {
  const requirements = path.join(folder, 'requirements-test.txt');
  const made = pinnedEnvironment({ name: 'python-client', requirements, env: process.env, say: () => {} });
  const operator = await token('trainer', 'admin');
  await startPool();
  gradeAsTasksSay(service, store);
  holdAsTasksSay();
  const begun: string[] = [];
  const { init } = service.workers.script;
  service.workers.script.init = (input) => {
    if (input.request.task.id === 'accepted-once') begun.push(input.request.rolloutId);
    return init(input);
  };
  const { url } = await gateway({ guarded: true });
  const restarting = await restartedGateway({
    ROLLOUTS_TEMPORAL_ADDRESS: service.address,
    ROLLOUTS_STORE_FOLDER: store.folder,
  });
  cleanUp.push(() => restarting.stop());
  const python = path.join(await made, 'bin', 'python');
  const options = ['--service', url, '--token', operator, '--restarting', restarting.url];
  const args = ['-B', '-m', 'pytest', '-q', '-p', 'no:cacheprovider', ...options];
  const pytest = spawn(python, args, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
  const [said, [code]] = await Promise.all([text(pytest.stdout), once(pytest, 'exit')]);
  assert.equal(code, 0, said);
  assert.match(said, /^(\d+) passed(, \d+ skipped)? in/m);
  const [first, ...others] = restarting.accepted;
  // A slow restart has the client ask more than once.
  assert.deepEqual([...new Set(others)], [first], 'accepted, and said again after the restart');
  assert.deepEqual(begun, [first], 'and begun once');
});

test('a change of the pool whose answer was lost is not made again', async () => {
  const { url } = await gateway();
  const swap = (key: string) =>
    fetch(`${url}/v1/policies/default/version`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': key },
      body: JSON.stringify({ mode: 'abort', version: 100, folder: '/weights/100' }),
    });
  const [first, again] = [await swap('once'), await swap('once')];
  const answer = await first.text();
  assert.deepEqual([first.status, again.status, await again.text()], [200, 200, answer], answer);
  assert.equal(loaded.filter((each) => each === '/weights/100').length, 1);
  assert.equal((await swap('another')).status, 422, 'another call is another change');
});
