import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import type { SandboxClient } from '../../activities/sandbox/client.ts';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { findRuntime } from '../../workers/sandbox-host/backends/apptainer-runtime.ts';
import { buildImage } from '../../workers/sandbox-host/images/build.ts';
import { findLeaks } from '../../workers/sandbox-host/leaks.ts';
import { clearLeftOvers } from '../../workers/sandbox-host/left-overs.ts';
import type { ProcessInfo } from '../../workers/sandbox-host/processes.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { hostOptions, startHostProcess, temporaryFolder, until } from '../sandbox/support.ts';
import { APPTAINER, WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { buildOptions, helpersOf, makeRoot, processesWith } from './support.ts';

test('a host that is killed leaves no process, helper or folder', { skip: WITHOUT_APPTAINER }, async (t) => {
  const stateDir = temporaryFolder(t);
  const root = path.join(stateDir, 'root');
  makeRoot(root);
  const { path: image } = await buildImage(root, buildOptions(stateDir));
  const spec = SandboxSpec.parse({ image });
  let made = 0;
  const create = (client: SandboxClient) =>
    client.create({ rolloutId: `r-${++made}`, workflowRunId: 'run-1', attempt: 1, spec });

  await t.test('with a sandbox whose first process does not notice', async (t) => {
    const { child, client } = await startHostProcess(t, stateDir, 'apptainer');
    const { sandboxId, fence } = await create(client);
    const folder = path.join(stateDir, 'host', 'sandboxes', sandboxId);
    const [first] = JSON.parse(readFileSync(path.join(folder, 'processes.json'), 'utf8')) as {
      pid: number;
    }[];
    assert.equal(helpersOf(image).length, 1);
    await client.exec(sandboxId, { fence, argv: ['bash', '-c', '(sleep 300 &)'], timeoutMs: 10_000 });
    process.kill(first?.pid as number, 'SIGSTOP');
    child.kill('SIGKILL');
    await until(() => helpersOf(image).length === 0, 'the end of the helper');
    await until(() => processesWith(sandboxId).length === 0, 'the end of what holds the sandbox up');
  });

  await t.test('with helpers that outlived all that could have ended them', async (t) => {
    const { child, client } = await startHostProcess(t, stateDir, 'apptainer');
    const { sandboxId } = await create(client);
    const folder = path.join(stateDir, 'host', 'sandboxes', sandboxId);
    const recorded = readFileSync(path.join(folder, 'processes.json'), 'utf8');
    const pids = (JSON.parse(recorded) as { pid: number }[]).map(({ pid }) => pid);
    const isHelper = (pid: number) => /fuse/.test(readFileSync(`/proc/${pid}/comm`, 'utf8'));
    const helpers = pids.filter(isHelper).sort();
    assert.ok(helpers.length > 0);
    const others = [child.pid as number, ...pids.filter((pid) => !isHelper(pid))];
    for (const name of ['SIGSTOP', 'SIGKILL'] as const) for (const pid of others) process.kill(pid, name);
    await once(child, 'exit');
    const leaks = (await findLeaks(stateDir)).flatMap(({ kind, what }) =>
      kind === 'process' ? Number.parseInt(what, 10) : [],
    );
    // Those in a PID namespace of the runtime's own end with it; others outlive it.
    const { depth } = await findRuntime(APPTAINER);
    const left = depth > 1 ? [] : helpers;
    assert.deepEqual(leaks.sort(), left);
    // What a host that was killed earlier, while it made the sandbox, would have noted.
    const outer = (JSON.parse(recorded) as ProcessInfo[]).find(({ pid, session }) => pid === session);
    writeFileSync(path.join(folder, 'processes.json'), JSON.stringify([outer]));
    assert.deepEqual((await clearLeftOvers(path.dirname(folder))).processes, left.length);
    assert.deepEqual(helpersOf(image), []);
  });

  const next = await startSandboxHost(hostOptions(stateDir, 'apptainer'));
  t.after(() => next.close());
  assert.deepEqual(readdirSync(path.join(stateDir, 'host', 'sandboxes')), []);
  await until(() => processesWith(stateDir).length === 0, 'the end of all that was being made');
  assert.deepEqual(helpersOf(image), []);
});
