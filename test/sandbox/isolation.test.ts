import assert from 'node:assert/strict';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { refusesTracesAndFloods } from './attacks.ts';
import { Box, startHost, temporaryFolder } from './support.ts';

test('what runs in bubblewrap', async (t) => {
  const { client } = await startHost(t);
  const secret = path.join(temporaryFolder(t), 'secret');
  writeFileSync(secret, 'of the host');
  const shown = path.join(temporaryFolder(t), 'shown');
  writeFileSync(shown, 'to be read');
  process.env.ROLLOUT_TEST_SECRET = 'in the environment of the host';
  t.after(() => delete process.env.ROLLOUT_TEST_SECRET);
  const box = await Box.create(client, { binds: [{ source: shown, target: '/data/shown' }] });
  const python = (script: string) => box.exec(['python3', '-c', script]);

  await t.test("reaches no network, the host's loopback included", async (t) => {
    const server = createServer((socket) => socket.end('reached'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => server.close());
    const { port } = server.address() as { port: number };
    const connect = await python(
      `import socket; s = socket.socket(); s.settimeout(5); print(s.connect_ex(('127.0.0.1', ${port})))`,
    );
    assert.equal(connect.stdout.text, '111\n'); // ECONNREFUSED
    const devices = await box.exec(['bash', '-c', 'tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " "']);
    assert.equal(devices.stdout.text, 'lo\n');
    const out = await python(
      "import socket; s = socket.socket(); s.settimeout(5); print(s.connect_ex(('192.0.2.1', 80)))",
    );
    assert.equal(out.stdout.text, '101\n'); // ENETUNREACH
  });

  await refusesTracesAndFloods(t, box);

  await t.test('sees no file of the host but the binds, and cannot write those', async () => {
    for (const file of [secret, '/etc/shadow', '/root/.bashrc', '/home', '/var/lib', '/sys', '/opt']) {
      assert.equal((await box.exec(['test', '-e', file])).exitCode, 1, file);
    }
    assert.equal((await box.exec(['cat', '/data/shown'])).stdout.text, 'to be read');
    for (const file of ['/data/shown', '/usr/x', '/etc/passwd', '/x', '/run/rollout/x', '/bin/x']) {
      const write = await box.exec(['bash', '-c', `echo x >> ${file}`]);
      assert.equal(write.exitCode, 1, file);
      assert.match(write.stderr.text, /Read-only file system|Permission denied/, file);
    }
    assert.equal(readFileSync(shown, 'utf8'), 'to be read');
  });

  await t.test("cannot change the kernel's settings or the modes of devices", async () => {
    const before = readFileSync('/proc/sys/kernel/core_pattern', 'utf8');
    const mode = statSync('/dev/null').mode;
    const tries = [
      'echo x > /proc/sys/kernel/core_pattern',
      'echo 1 > /proc/sys/vm/drop_caches',
      'chmod 600 /dev/null',
      'mount -t tmpfs tmpfs /mnt',
      'unshare -Ur true',
      'unshare -U true',
    ];
    for (const attempt of tries) {
      const result = await box.exec(['bash', '-c', attempt]);
      assert.notEqual(result.exitCode, 0, attempt);
    }
    const writable = await box.exec([
      'bash',
      '-c',
      'find /proc -maxdepth 4 -path "/proc/[0-9]*" -prune -o -path /proc/self -prune ' +
        '-o -path /proc/thread-self -prune -o -type f -writable -print 2>/dev/null',
    ]);
    // These belong to the sandbox's own namespaces, or are for everyone to open.
    const own =
      /^\/proc\/(pressure\/|sys\/fs\/mqueue\/|sys\/kernel\/(auto_msgmni|msg|ns_last_pid|pid_max|sem|shm))/;
    const foreign = writable.stdout.text.split('\n').filter((file) => file !== '' && !own.test(file));
    assert.deepEqual(foreign, []);
    assert.equal(readFileSync('/proc/sys/kernel/core_pattern', 'utf8'), before);
    assert.equal(statSync('/dev/null').mode, mode);
  });

  await t.test('sees no process of the host and can signal none', async () => {
    const ids = await box.exec(['bash', '-c', 'cd /proc; echo [0-9]*']);
    assert.ok(ids.stdout.text.trim().split(' ').length < 8, ids.stdout.text);
    assert.notEqual((await box.exec(['bash', '-c', `kill -0 ${process.pid}`])).exitCode, 0);
    await box.exec(['bash', '-c', 'kill -KILL -1']);
    assert.equal((await box.bash('echo still here')).output.text, 'still here\n');
  });

  await t.test('its first process survives what it does', async () => {
    for (const name of ['KILL', 'STOP', 'TERM', 'HUP', 'INT'])
      await box.exec(['bash', '-c', `kill -${name} 1`]);
    assert.equal((await box.exec(['echo', 'alive'])).stdout.text, 'alive\n');
  });

  await t.test('finds no secret in any environment or argument list', async () => {
    const all = await box.exec([
      'bash',
      '-c',
      'cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr "\\0" "\\n"; env',
    ]);
    const shell = await box.bash('env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"');
    for (const text of [all.stdout.text, shell.output.text]) {
      assert.doesNotMatch(text, /ROLLOUT_TEST_SECRET|of the host/);
      assert.match(text, /^PAGER=cat$/m);
    }
  });

  await t.test('holds no open file of the host', async () => {
    const listing = await box.exec(['bash', '-c', 'ls -1 /proc/self/fd']);
    assert.equal(listing.stdout.text, '0\n1\n2\n3\n'); // 3: the listing itself
    assert.equal((await box.bash('ls -1 /proc/self/fd')).output.text, '0\n1\n2\n3\n');
    const first = await box.exec([
      'bash',
      '-c',
      'cd /proc/1/fd && for fd in *; do echo "$fd $(readlink "$fd")"; done',
    ]);
    // The host's hold on it and two to /dev/null, none of which can be looked at, let alone opened.
    assert.equal(first.stdout.text, '0 \n1 \n2 \n');
  });

  await t.test('gains nothing by setuid programs and has no capability', async () => {
    const status = await box.exec(['grep', '-E', 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs', '/proc/self/status']);
    assert.equal(
      status.stdout.text.replace(/\s+/g, ' '),
      'CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 0000000000000000 ' +
        'CapAmb: 0000000000000000 NoNewPrivs: 1 ',
    );
  });

  await t.test('leaves its neighbour alone', async () => {
    const other = await Box.create(client);
    await other.bash('echo mine > /workspace/file; echo mine > /tmp/file');
    assert.equal((await box.bash('ls -A /workspace /tmp | grep file')).output.text, '');
    await other.release();
  });
});
