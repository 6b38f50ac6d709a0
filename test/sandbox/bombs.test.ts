import assert from 'node:assert/strict';
import test from 'node:test';
import type { SandboxLimits } from '../../contracts/sandbox.ts';
import { BACKENDS, Box, startHost } from './support.ts';

const MIB = 1024 ** 2;

/** Something that takes all it can get, in a sandbox that is small. */
interface Bomb {
  readonly name: string;
  readonly limits: Partial<SandboxLimits>;
  readonly script: string;
  /** What the result names; null: the kernel refuses it and the program is told. */
  readonly limit: string;
  readonly output?: RegExp;
}

const python = (script: string): string => `exec python3 -c "${script}"`;

const LIBC = 'import ctypes, time\nlibc = ctypes.CDLL(None)';

/** Shared memory of System V: makes a segment of `MiB`, fills it and lets it go. */
const SEGMENT = `
${LIBC}
libc.shmat.restype = ctypes.c_void_p
def segment(mib):
    at = libc.shmat(libc.shmget(0, mib << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, mib << 20)
    libc.shmdt(ctypes.c_void_p(at))
`;

const BOMBS: Bomb[] = [
  {
    name: 'processes that never end',
    limits: { processes: 40 },
    script: 'bomb() { bomb | bomb & }; bomb; sleep 60',
    limit: 'processes',
  },
  {
    name: 'memory',
    limits: { memoryBytes: 64 * MIB },
    script: python('x = []\nwhile True: x.append(bytes([1]) * (1 << 20))'),
    limit: 'memory',
  },
  {
    name: 'memory, over before the next regular look',
    limits: { memoryBytes: 64 * MIB },
    // On a machine that has much else to do a look may come too late for a burst, not for all of them.
    script: python('for _ in range(4): x = None; x = bytes([1]) * (160 << 20)'),
    limit: 'memory',
  },
  {
    name: 'memory, asked for at once',
    limits: { memoryBytes: 64 * MIB },
    script: python('x = bytearray(20 << 30)'),
    limit: 'memory',
    output: /MemoryError/,
  },
  {
    name: 'tables of pages that were only read',
    limits: { memoryBytes: 64 * MIB },
    script: python(`
import mmap, time
pages = mmap.mmap(-1, 120 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
for at in range(0, 120 << 30, 2 << 20):
    pages[at]
    if at % (1 << 30) == 0: time.sleep(0.01)
time.sleep(20)`),
    limit: 'memory',
  },
  {
    name: 'segments of shared memory that nobody has attached',
    limits: { memoryBytes: 64 * MIB },
    script: python(`${SEGMENT}\nwhile True: segment(8); time.sleep(0.01)`),
    limit: 'memory',
  },
  {
    name: 'semaphores',
    limits: { memoryBytes: 64 * MIB },
    script: python(
      `${LIBC}\nfor _ in range(200): libc.semget(0, 32000, 0o600); time.sleep(0.01)\ntime.sleep(20)`,
    ),
    limit: 'memory',
  },
  {
    name: 'messages that nobody takes',
    limits: { memoryBytes: 64 * MIB },
    script: python(`${LIBC}
text = (ctypes.c_char * 4104)(1)
for _ in range(25000):
    queue = libc.msgget(0, 0o600)
    for _ in range(4): libc.msgsnd(queue, text, 4096, 0o4000)
time.sleep(20)`),
    limit: 'memory',
  },
  {
    name: 'files in memory and processes together',
    limits: { memoryBytes: 96 * MIB },
    script:
      'head -c 11M /dev/zero > /dev/shm/x; head -c 44M /dev/zero > /tmp/x; ' +
      `exec python3 -c "import time; x = bytes([1]) * (50 << 20); time.sleep(20)"`,
    limit: 'memory',
  },
  {
    name: 'disk',
    limits: { diskBytes: 32 * MIB },
    script: 'while :; do head -c 1M /dev/zero >> big || exit 9; sleep 0.005; done',
    limit: 'disk',
  },
  {
    name: 'one large file',
    limits: { fileBytes: 100_000 },
    script: 'exec dd if=/dev/zero of=/workspace/big bs=64k count=10',
    limit: 'disk',
  },
  { name: 'output', limits: { outputBytes: 2 * MIB }, script: 'yes', limit: 'output' },
  { name: 'processor time', limits: { cpuSeconds: 1 }, script: 'while :; do :; done', limit: 'cpu' },
  {
    name: 'open files',
    limits: { openFiles: 32 },
    script: python("files = []\nwhile True: files.append(open(0, closefd=False) and open('/dev/null'))"),
    limit: 'openFiles',
    output: /Too many open files/,
  },
];

for (const backend of BACKENDS.filter((name) => name !== 'process')) {
  test(`${backend}: bombs go off in their own sandbox only`, { concurrency: true }, async (t) => {
    const { client } = await startHost(t, backend, BOMBS.length + 1);
    const neighbour = await Box.create(client);
    await neighbour.bash('kept=yes; sleep 300 & job=$!');
    await Promise.all(
      BOMBS.map(({ name, limits, script, limit, output = /^/ }) =>
        t.test(name, async () => {
          const box = await Box.create(client, { limits });
          const result = await box.exec(['bash', '-c', script], undefined, 40_000);
          assert.deepEqual([result.limit, result.timedOut], [limit, false], result.stderr.text);
          assert.match(result.stderr.text, output);
          assert.equal((await box.bash('echo usable')).output.text.endsWith('usable\n'), true);
          await box.release();
        }),
      ),
    );
    const next = await neighbour.bash('kill -0 $job && echo "$kept"');
    assert.deepEqual([next.output.text, next.limit], ['yes\n', null]);
  });
}
