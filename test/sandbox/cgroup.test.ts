import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { pino } from 'pino';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { inCgroups } from '../../workers/sandbox-host/backends/in-cgroups.ts';
import { ProcessBackend } from '../../workers/sandbox-host/backends/process.ts';
import { divideCgroup, findCgroup, SandboxCgroup } from '../../workers/sandbox-host/limits/cgroup.ts';
import { MemoryWatch } from '../../workers/sandbox-host/limits/memory-watch.ts';
import { Supervisor } from '../../workers/sandbox-host/limits/supervisor.ts';
import { temporaryFolder } from './support.ts';

/** Files as a cgroup's, in a plain folder: the tests' machines have none with controllers. */
function makeGroup(folder: string, controllers = 'cpuset cpu io memory pids'): string {
  mkdirSync(folder, { recursive: true });
  const files = { controllers, procs: '', subtree_control: '', events: 'populated 1\n' };
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, `cgroup.${name}`), text);
  return folder;
}

const read = (...parts: string[]) => readFileSync(path.join(...parts), 'utf8');

test('a cgroup is used only if it has been handed to us, and else it is said why', (t) => {
  const place = temporaryFolder(t);
  const unit = 'user.slice/user-1000.slice/user@1000.service/app.slice/run-u7.scope';
  const own = makeGroup(path.join(place, unit));
  const mount = (root = '/') =>
    `25 1 0:22 / / rw - ext4 x rw\n31 25 0:27 ${root} ${place} rw - cgroup2 cgroup2 rw\n`;
  const find = (membership: string, mountinfo = mount(), delegated: unknown = true) =>
    findCgroup(membership, mountinfo, (...asked) => {
      assert.deepEqual(asked, ['run-u7.scope', true]);
      return delegated === true;
    });
  assert.deepEqual(find(`1:name=systemd:/x\n0::/${unit}\n`), { folder: own });
  assert.match(JSON.stringify(find(`0::/${unit}`, mount(), false)), /has not been delegated: .*Delegate=yes/);
  assert.match(JSON.stringify(find('4:memory:/x\n')), /there is no cgroup v2 here/);
  assert.match(JSON.stringify(find(`0::/${unit}`, '25 1 0:22 / / rw - ext4 x rw')), /no cgroup v2/);
  assert.match(JSON.stringify(find('0::/nowhere')), /not this user's to divide: ENOENT/);
  // Who starts the next host of a scope was put where the host before was.
  makeGroup(path.join(own, 'host'), 'memory pids');
  assert.deepEqual(find(`0::/${unit}/host`), { folder: own });
  writeFileSync(path.join(own, 'cgroup.controllers'), 'cpu pids');
  assert.match(JSON.stringify(find(`0::/${unit}`)), /has no controller for memory/);
  // A container's root, by name or by what is mounted; the machine's own has no events.
  makeGroup(place);
  assert.deepEqual(find('0::/\n'), { folder: place });
  assert.deepEqual(find('0::/host\n'), { folder: place });
  assert.deepEqual(
    findCgroup('0::/docker/1\n', mount('/docker/1'), () => true),
    { folder: place },
  );
  rmSync(path.join(place, 'cgroup.events'));
  assert.match(JSON.stringify(find('0::/\n')), /is the machine's/);
});

test('limits are written, processes put in, and what the kernel refused is named', async (t) => {
  const folder = makeGroup(temporaryFolder(t));
  writeFileSync(path.join(folder, 'cgroup.procs'), '12\n');
  await divideCgroup(folder, 'sb-1-');
  assert.equal(read(folder, 'host', 'cgroup.procs'), '12');
  assert.equal(read(folder, 'cgroup.subtree_control'), '+memory +pids +cpu');
  assert.equal(read(folder, 'host', 'cpu.weight'), '1000');

  const [workspaceDir, controlDir] = [path.join(folder, 'w'), path.join(folder, 'c')];
  mkdirSync(workspaceDir);
  const logger = pino({ level: 'silent' });
  const backend = inCgroups(new ProcessBackend(), folder, logger);
  assert.match(backend.guarantees.limits, /by cgroups below/);
  const spec = SandboxSpec.parse({ limits: { memoryBytes: 1000, processes: 9 } });
  const handle = await backend.create({ sandboxId: 'sb-1-a', workspaceDir, controlDir, spec });
  const group = path.join(folder, 'sb-1-a');
  t.after(async () => {
    rmSync(group, { recursive: true, force: true }); // files of a real one go with it
    await backend.destroy(handle);
  });
  assert.deepEqual(
    ['memory.max', 'pids.max', 'cgroup.procs'].map((name) => read(group, name)),
    ['1000', '10', String(handle.anchors[0]?.pid)],
  );
  const program = { argv: ['true'], cwd: '/', environment: {} };
  assert.deepEqual(backend.enter(handle, program).args.slice(2, 4), ['join', group]);

  const refused = (memory: number, pids: number) => {
    writeFileSync(path.join(group, 'memory.events'), `low 0\noom 9\noom_kill ${memory}\n`);
    writeFileSync(path.join(group, 'pids.events'), `max ${pids}\n`);
  };
  refused(1, 0);
  const shells = () => new Set<number>();
  const supervisor = new Supervisor({ backend, handle, workspaceDir, shells, logger });
  t.after(() => supervisor.stop());
  assert.equal(supervisor.begin()(), null);
  const ends = [supervisor.begin(), supervisor.begin()];
  refused(2, 0);
  assert.equal(ends[0]?.(), 'memory');
  refused(2, 3);
  assert.equal(ends[1]?.(), 'processes');
});

test('a sandbox whose memory the kernel can only take from running programs has hit its limit', async (t) => {
  const folder = temporaryFolder(t);
  const [MIB, limit] = [1024 ** 2, 64 * 1024 ** 2];
  const cgroup = new SandboxCgroup(folder, '');
  const handle = { sandboxId: 'sb-1-a', spec: SandboxSpec.parse({ limits: { memoryBytes: limit } }), cgroup };
  const ended: string[] = [];
  const watch = new MemoryWatch({
    backend: new ProcessBackend(),
    handle: handle as never,
    workspaceDir: folder,
    hit: () => ended.push('hit'),
    killCommands: () => ended.push('killed'),
    failed: (error) => assert.ifError(error),
  });
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  /** Looks again `ms` later, with so much of it in files that can be dropped, and so often more wanted. */
  const look = (ms: number, files: number, wanted: number): string[] => {
    now += ms;
    writeFileSync(path.join(folder, 'memory.current'), `${limit - 4096}\n`);
    writeFileSync(path.join(folder, 'memory.stat'), `anon 1\ninactive_file ${files}\nactive_file 0\n`);
    writeFileSync(path.join(folder, 'memory.events'), `low 0\nhigh 0\nmax ${wanted}\noom 0\n`);
    watch.look([], '/proc');
    return ended.splice(0);
  };
  // A large file that is read: as often as it likes.
  for (let wanted = 1; wanted < 20; wanted++) assert.deepEqual(look(500, 2 * MIB, wanted), []);
  // Full, but at rest.
  for (let round = 0; round < 20; round++) assert.deepEqual(look(500, 0, 20), []);
  // For a moment: it was given back.
  look(1, 2 * MIB, 20);
  assert.deepEqual(look(1, 0, 21), []);
  assert.deepEqual(look(900, 0, 22), []);
  assert.deepEqual(look(200, 2 * MIB, 23), []);
  assert.deepEqual(look(1, 0, 24), []);
  assert.deepEqual(look(1000, 0, 25), ['hit', 'killed']);
  assert.deepEqual(look(500, 0, 26), []);
});

test('where no processors are shared out, none are', async (t) => {
  const folder = makeGroup(temporaryFolder(t), 'memory pids');
  await divideCgroup(folder, 'sb-1-');
  assert.equal(read(folder, 'cgroup.subtree_control'), '+memory +pids');
  assert.equal(existsSync(path.join(folder, 'host', 'cpu.weight')), false);
});

test('a cgroup that is gone is no error', async (t) => {
  await new SandboxCgroup(temporaryFolder(t), 'none').remove();
});
