// Runs in the machine, in a cgroup that has been delegated: what only the kernel's own controllers can hold.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import {
  Box,
  hostOptions,
  startHost,
  startHostProcess,
  temporaryFolder,
  until,
} from '../../../test/sandbox/support.ts';
import { findLeaks } from '../../../workers/sandbox-host/leaks.ts';
import { ownCgroup } from '../../../workers/sandbox-host/limits/cgroup.ts';
import { sandboxPrefix } from '../../../workers/sandbox-host/paths.ts';
import { startSandboxHost } from '../../../workers/sandbox-host/server.ts';

const MIB = 1024 ** 2;
/** Milliseconds that a command may take: in the machine, seconds become minutes. */
const COMMAND_MS = 300_000;

const root = ownCgroup();
assert.ok(root.folder !== null, JSON.stringify(root));
const { folder } = root;

const groupOf = (box: Box) => path.join(folder, box.info.sandboxId);
const read = (box: Box, file: string) => readFileSync(path.join(groupOf(box), file), 'latin1');
const count = (box: Box, file: string, name: string) =>
  Number(new RegExp(`^${name} ([0-9]+)$`, 'm').exec(read(box, file))?.[1]);
const python = (script: string): string[] => ['python3', '-c', script];

/** Fills pairs of descriptors, which `make` makes, with what nobody reads. */
const holding = (make: string, write: string) => `
import os, socket, time
pairs = []
try:
    while True:
        pairs.append(${make})
        try:
            while True: ${write}
        except BlockingIOError: pass
except OSError as error: print(len(pairs), error, flush=True)
time.sleep(2)`;
const HOLDERS = {
  sockets: holding('socket.socketpair()', "pairs[-1][0].send(b'x' * 65536, socket.MSG_DONTWAIT)"),
  pipes: holding('os.pipe2(os.O_NONBLOCK)', "os.write(pairs[-1][1], b'x' * 65536)"),
};

test('the kernel holds the limits of a sandbox', async (t) => {
  const { client } = await startHost(t, 'bubblewrap', 8);
  const neighbour = await Box.create(client);
  await neighbour.bash('kept=yes; sleep 3000 & job=$!');
  /** Afterwards the sandbox can still be used, its neighbour has noticed nothing, and its cgroup goes with it. */
  const within = (name: string, limits: object, run: (box: Box) => Promise<void>) =>
    t.test(name, async () => {
      const box = await Box.create(client, { limits });
      await run(box);
      assert.match((await box.bash('echo usable', COMMAND_MS)).output.text, /usable\n$/);
      const next = await neighbour.bash('kill -0 $job && echo "$kept"', COMMAND_MS);
      assert.deepEqual([next.output.text, next.limit], ['yes\n', null]);
      assert.equal(count(neighbour, 'memory.events', 'oom_kill'), 0);
      await box.release();
      assert.equal(existsSync(groupOf(box)), false);
    });

  await within('all that runs in it is in its cgroup', {}, async (box) => {
    await box.bash('sleep 300 & setsid sleep 301 &');
    const running = box.exec(['bash', '-c', 'sleep 302; true'], undefined, COMMAND_MS);
    running.catch(() => {}); // it ends with the sandbox
    const commands = () =>
      read(box, 'cgroup.procs')
        .trim()
        .split('\n')
        .map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ').trim());
    for (const wanted of ['sleep 300', 'sleep 301', 'sleep 302']) {
      await until(() => commands().includes(wanted), wanted);
    }
  });

  const memory = { memoryBytes: 64 * MIB };
  await within('a memory bomb', memory, async (box) => {
    const bomb = 'x = [bytes([1]) * (1 << 20) for _ in iter(int, 1)]';
    const { limit, signal, exitCode } = await box.exec(python(bomb), undefined, COMMAND_MS);
    assert.deepEqual([limit, signal ?? exitCode], ['memory', 'SIGKILL']);
    assert.ok(count(box, 'memory.events', 'oom_kill') >= 1);
    const shell = await box.bash(`python3 -c '${bomb}'; echo $?`, COMMAND_MS);
    assert.deepEqual([shell.limit, shell.output.text.slice(-4), shell.restarted], ['memory', '137\n', false]);
    assert.ok(Number(read(box, 'memory.peak')) <= 64 * MIB, read(box, 'memory.peak'));
  });

  for (const [name, script] of Object.entries(HOLDERS)) {
    await within(`memory that ${name} hold`, { memoryBytes: 40 * MIB, openFiles: 4096 }, async (box) => {
      const { limit, stdout, stderr } = await box.exec(python(script), undefined, COMMAND_MS);
      const seen = `${stdout.text}${stderr.text}; at most ${read(box, 'memory.peak').trim()} bytes`;
      t.diagnostic(`${name}: ${limit}; ${seen}`);
      assert.equal(limit, 'memory', seen);
      assert.ok(Number(read(box, 'memory.peak')) <= 40 * MIB, seen);
    });
  }

  await within('what is only cached of a file is no memory', memory, async (box) => {
    const large = ['sh', '-c', 'head -c 150M /dev/zero > big && cat big > /dev/null'];
    const { limit, exitCode } = await box.exec(large, undefined, COMMAND_MS);
    assert.deepEqual([limit, exitCode], [null, 0]);
    assert.equal(count(box, 'memory.events', 'oom_kill'), 0);
    assert.ok(Number(read(box, 'memory.peak')) <= 64 * MIB);
  });

  await within('files in memory are memory of the sandbox', memory, async (box) => {
    const { exitCode } = await box.exec(['sh', '-c', 'head -c 20M /dev/zero > /tmp/x']);
    assert.equal(exitCode, 0);
    assert.ok(count(box, 'memory.stat', 'shmem') >= 20 * MIB, read(box, 'memory.stat'));
  });

  await within('a fork bomb', { processes: 40 }, async (box) => {
    const bomb = await box.bash('bomb() { bomb | bomb & }; bomb; sleep 500', COMMAND_MS, 1000);
    assert.deepEqual([bomb.limit, bomb.timedOut], ['processes', false]);
    await until(() => Number(read(box, 'pids.current')) < 10, read(box, 'pids.current'));
  });

  await t.test('processors are shared by sandbox, not by process', async (t) => {
    const [many, one] = [await Box.create(client), await Box.create(client)];
    await one.bash('true', COMMAND_MS);
    const load = many.exec(
      ['sh', '-c', 'for i in $(seq 20); do while :; do :; done & done; wait'],
      undefined,
      COMMAND_MS,
    );
    load.catch(() => {}); // it ends with the sandbox
    await until(() => Number(read(many, 'pids.current')) > 20, 'the load');
    const used = () => [many, one].map((box) => count(box, 'cpu.stat', 'usage_usec')) as [number, number];
    const before = used();
    const busy = 'import time\nend = time.monotonic() + 5\nwhile time.monotonic() < end: pass';
    await one.exec(python(busy), undefined, COMMAND_MS);
    const [all, own] = used().map((usec, index) => usec - (before[index] as number)) as [number, number];
    const share = own / (own + all);
    const times: number[] = [];
    for (let i = 0; i < 20; i++) {
      const since = performance.now();
      await one.bash('true', COMMAND_MS);
      times.push(performance.now() - since);
    }
    times.sort((a, b) => a - b);
    const took = [10, 18].map((at) => `${times[at]?.toFixed(1)} ms`).join(' (p50), ');
    t.diagnostic(`beside 20 busy processes: ${share.toFixed(2)} of what both have; a command ${took} (p95)`);
    // A half, and no twenty-first.
    assert.ok(share > 0.35, `${share}`);
    await Promise.all([many.release(), one.release()]);
  });
});

test('what a killed host left of cgroups goes with the next one', async (t) => {
  const stateDir = temporaryFolder(t);
  const { child, client } = await startHostProcess(t, stateDir);
  const box = await Box.create(client);
  await box.bash('sleep 300 &');
  assert.ok(existsSync(groupOf(box)));
  child.kill('SIGKILL');
  await once(child, 'exit');
  const next = await startSandboxHost(hostOptions(stateDir));
  t.after(() => next.close());
  assert.equal(existsSync(groupOf(box)), false);
  assert.deepEqual(await findLeaks(stateDir), []);
  const left = path.join(folder, `${sandboxPrefix(path.join(stateDir, 'host'))}0123456789abcdef`);
  mkdirSync(left);
  assert.deepEqual(await findLeaks(stateDir), [{ kind: 'cgroup', what: left }]);
  rmdirSync(left);
});

test('nothing is left', () => {
  const left = readdirSync(folder, { withFileTypes: true }).filter((one) => one.isDirectory());
  assert.deepEqual(
    left.map(({ name }) => name),
    ['host'],
  );
});
