import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { pino } from 'pino';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { findLeaks } from '../../workers/sandbox-host/leaks.ts';
import { sandboxPrefix } from '../../workers/sandbox-host/paths.ts';
import { processesOf } from '../../workers/sandbox-host/processes.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { processesWith } from '../apptainer/support.ts';
import { BACKENDS, Box, failure, hostOptions, startHostProcess, temporaryFolder, until } from './support.ts';

/** Milliseconds in which a sandbox is made, about: the moments at which a kill may find it half made. */
const MAKING_MS = { bubblewrap: 40, apptainer: 500, process: 10 };

for (const backend of BACKENDS) {
  test(`${backend}: property: whenever its host is killed, nothing stays and the next says who lost what`, async (t) => {
    const stateDir = temporaryFolder(t);
    const spec = SandboxSpec.parse({ environment: { ROLLOUT_TEST: stateDir } });
    const prefix = sandboxPrefix(path.join(stateDir, 'host'));
    let [made, slowest, used] = [0, 0, ''];
    const killOnce = async (making: number, ms: number, using: boolean): Promise<void> => {
      const { child, client } = await startHostProcess(t, stateDir, backend);
      used = '';
      if (using) {
        const box = await Box.create(client, spec);
        await box.bash('trap "" HUP TERM INT; (setsid nohup sleep 300 >/dev/null 2>&1 &); sleep 300 &');
        used = box.info.sandboxId;
        // Who waits outside for a stopped program is stopped as well.
        box.exec(['bash', '-c', 'kill -STOP $$']).catch(() => {}); // its host is killed
        await until(() => processesOf(used).some(({ stopped }) => stopped), 'the stop');
      }
      const create = () =>
        client.create({ rolloutId: `r-${++made}`, workflowRunId: 'run-1', attempt: 1, spec });
      const asked = Promise.allSettled(Array.from({ length: making }, create));
      await delay(ms); // any moment will do
      child.kill('SIGKILL');
      const killed = performance.now();
      await once(child, 'exit');
      await asked;
      const reaper = JSON.parse(readFileSync(path.join(stateDir, 'host', 'reaper.json'), 'utf8')) as {
        pid: number;
      }[];
      const left = () =>
        [...processesWith(stateDir), ...processesWith(prefix)].filter((pid) => pid !== reaper[0]?.pid);
      await until(() => left().length === 0, 'the end of everything');
      slowest = Math.max(slowest, performance.now() - killed);
    };
    const moment = fc.nat(MAKING_MS[backend]);
    await fc.assert(fc.asyncProperty(fc.integer({ min: 1, max: 3 }), moment, fc.boolean(), killOnce), {
      numRuns: 3,
      includeErrorInReport: true,
      endOnFailure: true,
    });
    await killOnce(2, MAKING_MS[backend] / 2, true);
    t.diagnostic(`all gone after ${slowest.toFixed(0)} ms at most`);

    const folders = readdirSync(path.join(stateDir, 'host', 'sandboxes'));
    assert.ok(folders.includes(used));
    const said: string[] = [];
    const logger = pino({ level: 'warn' }, { write: (line) => said.push(line) });
    const next = await startSandboxHost({ ...hostOptions(stateDir, backend), logger });
    t.after(() => next.close());
    assert.deepEqual(readdirSync(path.join(stateDir, 'host', 'sandboxes')), []);
    const lost = JSON.parse(said[0] ?? '{}') as { msg: string; rollouts: string[] };
    assert.match(lost.msg, /these rollouts lost their sandboxes/);
    assert.ok(lost.rollouts.length >= 1 && lost.rollouts.length <= folders.length);
    for (const rollout of lost.rollouts) assert.match(rollout, /^(r|rollout)-\d+$/);
    assert.deepEqual(await findLeaks(stateDir), []);
  });
}

test('what a killed host had written of a snapshot goes with the next host', async (t) => {
  const stateDir = temporaryFolder(t);
  const { child, client } = await startHostProcess(t, stateDir);
  const box = await Box.create(client);
  await box.bash('head -c 200M /dev/urandom > large');
  const { sandboxId, fence } = box.info;
  const file = path.join(stateDir, 'snapshot.tar');
  const written = client.snapshot(sandboxId, { fence, file });
  const failed = assert.rejects(written, failure('HostUnreachable'));
  const beside = () => readdirSync(stateDir).filter((name) => name.startsWith('snapshot.tar'));
  await until(() => beside().length === 1, 'its beginning');
  child.kill('SIGKILL');
  await Promise.all([once(child, 'exit'), failed]);
  const next = await startSandboxHost(hostOptions(stateDir));
  t.after(() => next.close());
  assert.deepEqual(beside(), []);
});
