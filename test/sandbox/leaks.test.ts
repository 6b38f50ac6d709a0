import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readlinkSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { pino } from 'pino';
import { Audit, type RolloutState } from '../../workers/sandbox-host/audit.ts';
import { findLeaks } from '../../workers/sandbox-host/leaks.ts';
import { clearLeftOvers } from '../../workers/sandbox-host/left-overs.ts';
import { sandboxPrefix } from '../../workers/sandbox-host/paths.ts';
import { isAlive, namesAsText, readNames } from '../../workers/sandbox-host/process-names.ts';
import { type ProcessInfo, processInfo } from '../../workers/sandbox-host/processes.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { BACKENDS, Box, failure, hostOptions, startHost, temporaryFolder, until } from './support.ts';

/** How many sandboxes are made and released: a few in each run of the tests, many in the benchmark. */
const SANDBOXES = 30;

/** What this process holds open, by kind: sockets come and go with connections. */
function openFiles(): string[] {
  return readdirSync('/proc/self/fd')
    .map((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`);
      } catch {
        return ''; // the listing itself
      }
    })
    .filter((name) => /^(pipe:|\/)/.test(name) && !name.startsWith('/proc'))
    .map((name) => name.replace(/^pipe:.*/, 'pipe'))
    .sort();
}

for (const backend of BACKENDS.filter((name) => name === 'bubblewrap' || name === 'process')) {
  test(`${backend}: sandboxes made, used and released leave nothing`, async (t) => {
    const { client, stateDir } = await startHost(t, backend);
    const use = async (): Promise<void> => {
      const box = await Box.create(client);
      await box.bash('(setsid sleep 300 &); sleep 300 & yes >/dev/null & yes & echo x > file');
      await box.exec(['sh', '-c', 'sleep 300 & echo']);
      await box.release();
    };
    await use(); // what is made once is made now
    const before = openFiles();
    const count = backend === 'bubblewrap' ? SANDBOXES : 4;
    for (let done = 0; done < count; done += 2) await Promise.all([use(), use()]);
    assert.deepEqual(await findLeaks(stateDir), []);
    await until(() => openFiles().join() === before.join(), `only ${before.join()} to be open`);
  });
}

test('what is left behind is found, and what lives is not taken for it', async (t) => {
  const { client, running, stateDir } = await startHost(t);
  const box = await Box.create(client);
  await box.bash('sleep 300 &');
  assert.deepEqual(await findLeaks(stateDir), []);
  const root = path.join(stateDir, 'host');
  const lost = `${sandboxPrefix(root)}0123456789abcdef`;
  const folder = path.join(root, 'sandboxes', lost);
  mkdirSync(folder);
  mkdirSync(`/tmp/${lost}`);
  t.after(() => rmSync(`/tmp/${lost}`, { recursive: true, force: true }));
  const child = spawn('/bin/sleep', ['300'], { env: { ROLLOUT_SANDBOX: lost } });
  const other = spawn('/bin/sleep', ['300'], { env: { ROLLOUT_SANDBOX: 'sb-000000-0123456789abcdef' } });
  t.after(() => [child, other].map((each) => each.kill('SIGKILL')));
  await once(child, 'spawn');
  assert.deepEqual(await findLeaks(stateDir), [
    { kind: 'folder', what: folder },
    { kind: 'folder', what: `/tmp/${lost}` },
    { kind: 'process', what: `${child.pid} /bin/sleep 300` },
  ]);
  await running.close();
  assert.deepEqual(
    (await findLeaks(stateDir)).map(({ kind }) => kind),
    ['folder', 'folder', 'process'],
  );
  await clearLeftOvers(path.dirname(folder));
  assert.deepEqual(await findLeaks(stateDir), []);
  assert.deepEqual(
    [child, other].map(({ exitCode, signalCode }) => exitCode ?? signalCode),
    ['SIGKILL', null],
  );
});

test('a sandbox that nobody asks about is reaped only if its rollout is over', async (t) => {
  const { client, running } = await startHost(t, 'process');
  const [asked, silent] = [await Box.create(client), await Box.create(client)];
  const states = new Map<string, RolloutState | Error>();
  const looked: string[] = [];
  const auditAfter = (silentMs: number) =>
    new Audit({
      isOpen: async (rolloutId, workflowRunId) => {
        looked.push(`${rolloutId} ${workflowRunId}`);
        const state = states.get(rolloutId) ?? 'open';
        if (state instanceof Error) throw state;
        return state;
      },
      times: { silentMs, unknownMs: 3_600_000, ledgerMs: 3_600_000 },
      sandboxes: () => [asked, silent].flatMap(({ info }) => present(info.sandboxId)),
      reap: (sandboxId) => running.host.release(sandboxId),
      ledgersDir: running.host.paths.ledgers,
      logger: pino({ level: 'silent' }),
    });
  const present = (id: string) => {
    try {
      return [running.host.get(id)];
    } catch {
      return []; // reaped
    }
  };
  const rollout = running.host.get(silent.info.sandboxId).rolloutId;
  /** Lets the leases run out, but for the sandbox that is watched. */
  const silence = () => new Promise((resolve) => setTimeout(resolve, 310));
  const watching = new AbortController();
  client.watch(asked.info.sandboxId, { fence: asked.info.fence }, watching.signal).catch(() => {}); // until the end
  await auditAfter(60_000).look();
  assert.deepEqual(looked, []);
  const audit = auditAfter(300);
  for (const state of ['open', 'unknown', new Error('no connection')] as const) {
    states.set(rollout, state);
    await silence();
    looked.length = 0;
    await audit.look();
    assert.deepEqual(looked, [`${rollout} run-1`]);
    assert.equal((await silent.bash('echo alive')).output.text, 'alive\n');
  }
  states.set(rollout, 'closed');
  await auditAfter(60_000).look();
  assert.equal((await silent.bash('echo asked for')).output.text, 'asked for\n');
  await silence();
  assert.equal(audit.reaped, 0);
  await audit.look();
  assert.equal(audit.reaped, 1);
  await assert.rejects(silent.bash('true'), failure('SandboxLost'));
  assert.equal((await asked.bash('echo alive')).output.text, 'alive\n');
  watching.abort();
});

test('a sandbox whose rollout stays unknown is kept for so long and no longer', async (t) => {
  const reaped: string[] = [];
  const sandbox = { sandboxId: 'a', rolloutId: 'r', attempt: { workflowRunId: 'w' }, lastHeard: 0 };
  const audit = (unknownMs: number) =>
    new Audit({
      isOpen: async () => 'unknown',
      times: { silentMs: 1, unknownMs, ledgerMs: 1 },
      sandboxes: () => [sandbox],
      reap: async (sandboxId) => reaped.push(sandboxId),
      ledgersDir: temporaryFolder(t),
      logger: pino({ level: 'silent' }),
    });
  await audit(3_600_000).look();
  assert.deepEqual(reaped, []);
  await audit(2).look();
  assert.deepEqual(reaped, ['a']);
});

test('ledgers of released rollouts go when their time is over, those of live ones stay', async (t) => {
  const { client, running } = await startHost(t, 'process');
  const [live, done, recent] = [await Box.create(client), await Box.create(client), await Box.create(client)];
  const folders = [live, done, recent].map((box) => {
    const { rolloutId } = running.host.get(box.info.sandboxId);
    return path.join(running.host.paths.ledgers, rolloutId);
  }) as [string, string, string];
  await done.release();
  await recent.release();
  const old = Date.now() / 1000 - 30 * 86_400;
  for (const folder of folders.slice(0, 2)) {
    for (const file of readdirSync(folder)) utimesSync(path.join(folder, file), old, old);
    utimesSync(folder, old, old);
  }
  await running.host.audit.removeLedgers();
  assert.deepEqual(folders.map(existsSync), [true, false, true]);
});

test('a process is not taken for one that an earlier boot of the machine had', async (t) => {
  const own = JSON.parse(namesAsText([processInfo(process.pid) as ProcessInfo]));
  assert.equal(readNames(JSON.stringify(own)).filter(isAlive)[0]?.pid, process.pid);
  const before = JSON.stringify(own.map((name: object) => ({ ...name, boot: 'another' })));
  assert.deepEqual(readNames(before), []);
  // As the host's own, and as what holds a sandbox up.
  const stateDir = temporaryFolder(t);
  const folder = path.join(stateDir, 'host', 'sandboxes', 'left');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(path.join(stateDir, 'host', 'owner.json'), before);
  writeFileSync(path.join(folder, 'processes.json'), before);
  assert.ok((await findLeaks(stateDir)).some(({ kind, what }) => kind === 'folder' && what === folder));
  const next = await startSandboxHost(hostOptions(stateDir));
  t.after(() => next.close());
  assert.deepEqual(readdirSync(path.dirname(folder)), []);
});
