import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import type { SandboxLimits } from '../../contracts/sandbox.ts';
import { processIds } from '../../workers/sandbox-host/processes.ts';
import { Box, startHost, until } from './support.ts';

const MIB = 1024 ** 2;

test('limits of a whole sandbox', async (t) => {
  const { client } = await startHost(t, 'bubblewrap', 8);
  const neighbour = await Box.create(client);
  await neighbour.bash('kept=yes; sleep 300 & job=$!');
  /** A sandbox with these limits; after each test its neighbour is as it was, and it can be used itself. */
  const within = (name: string, limits: Partial<SandboxLimits>, run: (box: Box) => Promise<void>) =>
    t.test(name, async () => {
      const box = await Box.create(client, { limits });
      await run(box);
      assert.equal((await box.bash('echo usable')).output.text.endsWith('usable\n'), true);
      const next = await neighbour.bash('kill -0 $job && echo "$kept"');
      assert.deepEqual([next.output.text, next.limit], ['yes\n', null]);
      await box.release();
    });

  await within(
    'a process that takes all memory is killed, and the result says why',
    { memoryBytes: 128 * MIB },
    async (box) => {
      const bomb = 'python3 -c "\nx = []\nwhile True: x.append(bytes([1]) * (1 << 22))"';
      const result = await box.bash(`${bomb}; echo "status $?"`);
      // Killed by the watch, or refused by the kernel first: it stopped either way.
      assert.match(result.output.text, /status (137|1)\n$/);
      assert.equal(result.limit, 'memory');
      const { exitCode, signal, limit } = await box.exec(['bash', '-c', bomb]);
      assert.equal(signal === 'SIGKILL' || exitCode === 137 || exitCode === 1, true);
      assert.equal(limit, 'memory');
    },
  );

  await within(
    'memory counts over all processes, and what they share once',
    { memoryBytes: 160 * MIB },
    async (box) => {
      const shared = `
import os, time
x = bytes([1]) * (60 << 20)
for _ in range(6):
    if os.fork() == 0: time.sleep(0.7); os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break
print('done')`;
      const fine = await box.exec(['python3', '-c', shared]);
      assert.deepEqual([fine.stdout.text, fine.limit], ['done\n', null]);
      const many =
        'for i in 1 2 3 4 5 6 7 8; do python3 -c "x = bytes([1]) * (60 << 20); input()" < <(sleep 4) & done; wait';
      assert.equal((await box.exec(['bash', '-c', many], undefined, 15_000)).limit, 'memory');
    },
  );

  await within(
    'files in memory count as memory, without a name too',
    { memoryBytes: 128 * MIB },
    async (box) => {
      const memfd = `
import os
fd = os.memfd_create('x')
while True: os.write(fd, b'x' * (1 << 20))`;
      const result = await box.exec(['python3', '-c', memfd], undefined, 60_000);
      assert.deepEqual([result.signal, result.limit, result.timedOut], ['SIGKILL', 'memory', false]);
      const full = await box.bash('head -c 100M /dev/zero > /tmp/big; echo $?; rm /tmp/big');
      assert.match(full.output.text, /No space left on device\n1\n$/);
      assert.equal((await box.exec(['sh', '-c', 'head -c 100M /dev/zero > /dev/shm/big'])).limit, 'disk');
      assert.notEqual((await box.exec(['sh', '-c', 'mkdir /dev/x || echo x > /dev/x'])).exitCode, 0);
    },
  );

  await within('a fork bomb is put out though it never ends', { processes: 50 }, async (box) => {
    const result = await box.bash('bomb() { bomb | bomb & }; bomb; sleep 60; echo over', 30_000, 1000);
    assert.equal(result.limit, 'processes');
    assert.equal(result.timedOut, false);
    await until(
      async () => (await box.exec(['sh', '-c', 'ls -d /proc/[0-9]* | wc -l'])).stdout.text.length < 3,
      'its end',
    );
    const threads = `
import threading, time
try:
    for _ in range(99): threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
except RuntimeError as error: print(error)
time.sleep(0.4)`;
    const result2 = await box.exec(['python3', '-c', threads]);
    assert.equal(result2.stdout.text, "can't start new thread\n");
    assert.equal(result2.limit, 'processes');
  });

  const disk = { diskBytes: 64 * MIB, diskFiles: 3000 };
  await within('a disk filler is stopped: one file, many small ones, deleted ones', disk, async (box) => {
    const fillers = {
      one: 'i=0; while :; do head -c 1M /dev/zero >> big || exit 9; sleep 0.005; done',
      small: 'mkdir -p many; cd many; i=0; while :; do i=$((i+1)); : > $i; done',
      deleted: 'exec 3> gone; rm gone; while :; do head -c 1M /dev/zero >&3 || exit 9; sleep 0.005; done',
      deep: `exec python3 -c "
import os, time
while True: os.mkdir('d'); os.chdir('d'); time.sleep(0.0005)"`,
    };
    for (const [name, filler] of Object.entries(fillers)) {
      const result = await box.exec(['bash', '-c', filler], undefined, 40_000);
      assert.deepEqual(
        [name, result.limit, result.signal, result.timedOut],
        [name, 'disk', 'SIGKILL', false],
      );
      // What is there can be looked at and removed.
      const clean = await box.exec(['bash', '-c', 'rm -rf * && ls -A'], undefined, 90_000);
      assert.deepEqual([clean.exitCode, clean.stdout.text], [0, '']);
    }
  });

  await within('a shell that writes goes with its programs', { diskBytes: 16 * MIB }, async (box) => {
    const write = ["printf '%500000s' x > $i; read -t 0.01 <> <(:)", 'head -c 500000 /dev/zero > $i'];
    for (const each of write) {
      const shell = await box.bash(`for i in {1..2000}; do ${each}; done`, 60_000);
      assert.deepEqual([each, shell.limit, shell.exitCode, shell.restarted], [each, 'disk', 137, true]);
      assert.equal((await box.bash('rm -rf * && ls -A')).output.text, '');
    }
  });

  await within('holes and second names of files take no disk', disk, async (box) => {
    const sparse =
      'truncate -s 900M holes; head -c 20M /dev/zero > a; for i in $(seq 50); do ln a a$i; done; sleep 1';
    for (let round = 0; round < 2; round++) assert.equal((await box.bash(sparse)).limit, null);
    const one = await box.exec(['dd', 'if=/dev/zero', 'of=/workspace/big', 'bs=1M', 'count=2', 'seek=2000']);
    assert.equal(one.limit, 'disk');
  });

  await within('what sleeps for too long is ended, and not what works', { idleSeconds: 0.5 }, async (box) => {
    const ends = async (program: string) => {
      const { limit, timedOut, stdout } = await box.exec(['python3', '-c', program], undefined, 40_000);
      return [limit, timedOut, stdout.text];
    };
    const work = 'while time.process_time() < 0.8: pass\nprint("done")';
    const inThread = work.replaceAll('\n', '\n    ');
    assert.deepEqual(await ends('import os\nprint("asks", flush=True)\nos.read(os.pipe()[0], 1)'), [
      ...['idle', false, 'asks\n'],
    ]);
    assert.deepEqual(await ends('import time\nwhile True: time.sleep(0.01)'), ['idle', false, '']);
    assert.deepEqual(await ends(`import time\n${work}`), [null, false, 'done\n']);
    const threads = `import threading, time\ndef f():\n    ${inThread}\nt = threading.Thread(target=f)\nt.start()\nt.join()`;
    assert.deepEqual(await ends(threads), [null, false, 'done\n']);
  });

  await within('a command that prints without end is stopped', { outputBytes: 5 * MIB }, async (box) => {
    const shell = await box.bash('yes');
    assert.deepEqual(
      [shell.limit, shell.timedOut, shell.output.totalBytes > 5 * MIB],
      ['output', false, true],
    );
    const program = await box.exec(['yes']);
    assert.deepEqual([program.limit, program.signal], ['output', 'SIGKILL']);
    assert.ok(program.stdout.totalBytes > 5 * MIB && program.stdout.text.length < 2 * MIB);
  });

  await within('what prints while nobody waits is not read', {}, async (box) => {
    const mark = `noise-${Math.random()}`;
    await box.bash(`yes ${mark} & echo begun`);
    const find = () => processIds().find((pid) => commandLine(pid) === `yes\0${mark}\0`);
    await until(() => find() !== undefined, 'the noise');
    const io = () => readFileSync(`/proc/${find()}/io`, 'latin1');
    let before = '';
    await until(async () => {
      if (before === io()) return true;
      before = io();
      await new Promise((resolve) => setTimeout(resolve, 100));
      return false;
    }, 'it to wait for a reader');
    const next = await box.bash('kill %1; wait; echo next');
    // What was killed may have got only a part of its last line out.
    assert.equal(next.output.text.slice(-5), 'next\n');
    assert.equal((await box.bash('true')).exitCode, 0);
    assert.equal(find(), undefined);
  });
});

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return ''; // it has ended
  }
}
