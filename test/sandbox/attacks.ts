import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { ABIS, NUMBERS, type Processor } from '../../workers/sandbox-host/backends/seccomp/rules.ts';
import { Box } from './support.ts';

/** Python that does what `expression` says with the C library as `c`, and prints what comes of it. */
const withLibc = (expression: string): string[] => [
  ...['/usr/bin/python3', '-c'],
  `import ctypes; c = ctypes.CDLL(None, use_errno=True); print(${expression})`,
];

/** Python that makes system calls and prints a list: of each its error, or 0. */
const calling = (calls: readonly (readonly [name: string, ...args: (number | string)[]])[]): string[] => {
  const numbers = { ...ABIS[process.arch as Processor].numbers, ...NUMBERS };
  const asked = calls.map(([name, ...args]) => `[${[numbers[name], ...args].join(', ')}]`);
  const script = `
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
long = lambda value: value if isinstance(value, bytes) else ctypes.c_long(value)
print([ctypes.get_errno() if c.syscall(*map(long, call)) < 0 else 0 for call in [${asked}]])`;
  return ['/usr/bin/python3', '-c', script];
};

/** Tests of what every backend with namespaces of its own must refuse to code in `box`. */
export async function refusesTracesAndFloods(t: TestContext, box: Box): Promise<void> {
  await t.test('leaves to neighbours what the kernel counts by user', async () => {
    const watchers = await box.exec(withLibc('[c.inotify_init() for _ in range(40)].index(-1)'));
    assert.equal(watchers.stdout.text, '32\n', watchers.stderr.text);
  });

  await t.test('cannot trace the first process, whose death would be a new attempt', async () => {
    const ATTACH_AND_SEIZE = [16, 0x4206];
    for (const how of ATTACH_AND_SEIZE) {
      const trace = await box.exec(withLibc(`c.ptrace(${how}, 1, 0, 0), ctypes.get_errno()`));
      assert.equal(trace.stdout.text, '-1 1\n', trace.stderr.text); // EPERM
    }
    assert.equal((await box.exec(['cat', '/proc/1/environ'])).exitCode, 1);
  });

  await t.test('has sockets of few families, none of which leads to the host', async () => {
    const script = `
import socket
made = set()
for family in range(64):
    for kind in 1, 2, 3, 5:
        for make in socket.socket, socket.socketpair:
            try: make(family, kind); made.add(family)
            except OSError: pass
print(sorted(made), socket.AF_VSOCK in made)`;
    const families = await box.exec(['/usr/bin/python3', '-c', script]);
    assert.equal(families.stdout.text, '[1, 2, 10, 16] False\n', families.stderr.text);
  });

  await t.test('finds no way around memory, processes or namespaces in the calls of the kernel', async () => {
    const [EPERM, ENOMEM, ENOSYS] = [1, 12, 38];
    const absent = [
      'memfd_secret',
      'io_uring_setup',
      'userfaultfd',
      'add_key',
      'clone3',
      'vmsplice',
    ] as const;
    const forbidden = [
      'mount',
      'fsopen',
      'open_tree',
      'bpf',
      'perf_event_open',
      'syslog',
      'kexec_load',
    ] as const;
    const cases: [number, ...Parameters<typeof calling>[0][number]][] = [
      ...absent.map((name): (typeof cases)[number] => [ENOSYS, name, 0, 0, 0]),
      ...forbidden.map((name): (typeof cases)[number] => [EPERM, name, 3, 0, 0]),
      [EPERM, 'unshare', 0x1000_0000],
      [EPERM, 'clone', 0x1000_0011],
      [EPERM, 'ioctl', 0, 0x5412, "b'x'"],
      [EPERM, 'ioctl', 0, 0x1_0000_5412, "b'x'"],
      [EPERM, 'ioctl', 0, 0x5423, "b'xxxx'"],
      [ENOMEM, 'mmap', 0, 4096, 3, 0x4_0022, -1, 0],
    ];
    const answers = await box.exec(calling(cases.map(([, ...call]) => call)));
    assert.deepEqual(
      JSON.parse(answers.stdout.text || '[]'),
      cases.map(([errno]) => errno),
      answers.stderr.text,
    );
    const words = calling([['ioctl', 0, 0x5412, "b'x'"]]).map(quoted);
    const typed = await box.bash(words.join(' '), 30_000, 16_384, 'terminal');
    assert.equal(typed.output.text, `[${EPERM}]\n`);
    // getpid of 32 bits, as machine code.
    const foreign = 'm = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex("b814000000cd80c3"))';
    const jump = 'ctypes.CFUNCTYPE(int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()';
    if (process.arch !== 'x64') return;
    const end = await box.exec(['/usr/bin/python3', '-c', `import ctypes, mmap; ${foreign}; ${jump}`]);
    assert.deepEqual([end.signal, end.exitCode], ['SIGSYS', null]);
  });

  await t.test(
    'holds what the kernel counts by user, and its neighbour has all of it',
    {
      skip: process.geteuid?.() !== 0 && 'all sandboxes of an ordinary user are that user',
    },
    async () => {
      const neighbour = await Box.create(box.client);
      const hold = `
import os, socket, time
def fill(pair):
    pair[0].setblocking(False)
    try:
        while True: socket.send_fds(pair[0], [b'x'], [0] * 200)
    except OSError as error: return error.errno
pipes = [os.pipe() for _ in range(200)]
for _ in range(3):
    if os.fork() == 0: pipes += [os.pipe() for _ in range(250)]; break
pairs = []
while True:
    pairs.append(socket.socketpair())
    if fill(pairs[-1]) == 109: break # ETOOMANYREFS
open('/workspace/full', 'w')
while os.path.exists('/workspace/full'): time.sleep(0.05)`;
      const running = box.exec(['/usr/bin/python3', '-c', hold]);
      await box.bash('until [ -e /workspace/full ]; do sleep 0.05; done', 30_000, 16_384, 'terminal');
      const asks = `
import fcntl, os, socket
pair = socket.socketpair(); socket.send_fds(pair[0], [b'x'], [0])
print(fcntl.fcntl(os.pipe()[0], 1032))`;
      const asked = await neighbour.exec(['/usr/bin/python3', '-c', asks]);
      assert.equal(asked.stdout.text, '65536\n', asked.stderr.text);
      await box.exec(['rm', '/workspace/full']);
      await running;
      await neighbour.release();
    },
  );

  await t.test('makes files without end in memory: no space is left, and nothing else is lost', async () => {
    const small = await Box.create(box.client, { limits: { memoryBytes: 64 * 1024 ** 2 } });
    for (const folder of ['/tmp', '/root', '/dev/shm']) {
      const endless = `import os\nos.mkdir('${folder}/i')\nn = 0\nwhile True: n += 1; os.mknod(f'${folder}/i/{n}')`;
      const filled = await small.exec(['/usr/bin/python3', '-c', endless]);
      assert.deepEqual([folder, filled.exitCode, filled.limit], [folder, 1, 'disk']);
      assert.match(filled.stderr.text, /No space left on device/);
    }
    // Full as they are, what has nothing to do with them is as it was, and named nothing.
    for (const harmless of [
      'echo alive',
      'sleep 0.1; echo alive',
      '/usr/bin/python3 -c "print(\'alive\')"',
    ]) {
      const { output, limit, restarted } = await small.bash(harmless);
      assert.deepEqual([output.text, limit, restarted], ['alive\n', null, false], harmless);
    }
    assert.equal((await small.bash('rm -rf /tmp/i /root/i /dev/shm/i && echo free > /tmp/x')).exitCode, 0);
    await small.release();
  });

  await t.test('is told which limit a program hit', async () => {
    const limits = { fileBytes: 4096, openFiles: 40 };
    const small = await Box.create(box.client, { limits });
    const python = (script: string): string[] => ['/usr/bin/python3', '-c', script];
    const cases: [string, string[]][] = [
      ['disk', python("with open('/workspace/f', 'wb') as file: file.write(b'x' * 5000)")],
      ['disk', ['/bin/bash', '-c', 'printf %5000d 1 > /tmp/f']],
      ['openFiles', python("files = [open('/dev/null') for _ in range(50)]")],
    ];
    for (const [limit, argv] of cases) {
      assert.equal((await small.exec(argv)).limit, limit, argv.join(' '));
      assert.equal((await small.bash(argv.map(quoted).join(' '))).limit, limit, argv.join(' '));
    }
    assert.equal((await small.bash('echo fine')).limit, null);
    await small.release();
  });

  await t.test('lets ordinary programs be', async () => {
    const script = `
import os, socket, subprocess, threading, ctypes
thread = threading.Thread(target=print, args=('thread',), daemon=True); thread.start(); thread.join()
print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())
print(socket.if_nameindex(), os.unshare(0x400) if hasattr(os, 'unshare') else None)
c = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    c.ptrace(0, 0, 0, 0); os.kill(os.getpid(), 19); os._exit(3)
os.waitpid(child, 0); c.ptrace(7, child, 0, 0); print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))`;
    const ordinary = await box.exec(['/usr/bin/python3', '-c', script]);
    assert.equal(ordinary.stdout.text, "thread\nchild\n[(1, 'lo')] None\n3\n", ordinary.stderr.text);
  });
}

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;
