import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { refusesTracesAndFloods } from '../sandbox/attacks.ts';
import { Box, startHost, temporaryFolder } from '../sandbox/support.ts';
import { WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { processesWith } from './support.ts';

test('what runs in apptainer', { skip: WITHOUT_APPTAINER }, async (t) => {
  for (const name of ['ROLLOUT_TEST_SECRET', 'APPTAINERENV_LEAK', 'SINGULARITYENV_LEAK', 'APPTAINER_BIND']) {
    process.env[name] = name === 'APPTAINER_BIND' ? '/etc:/leaked' : 'in the environment of the host';
    t.after(() => delete process.env[name]);
  }
  const { client } = await startHost(t, 'apptainer');
  const secret = path.join(temporaryFolder(t), 'secret');
  writeFileSync(secret, 'of the host');
  const shown = path.join(temporaryFolder(t), 'shown, "so": named');
  writeFileSync(shown, 'to be read');
  const binds = [{ source: shown, target: '/data/shown' }];
  const box = await Box.create(client, { binds, environment: { LD_LIBRARY_PATH: '/nowhere' } });
  const bash = (script: string) => box.exec(['bash', '-c', script]);

  await t.test("reaches no network, the host's loopback included", async (t) => {
    const server = createServer((socket) => socket.end('reached'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => server.close());
    const { port } = server.address() as { port: number };
    const devices = await bash('while read -r name _; do echo "$name"; done < /proc/net/dev');
    assert.equal(devices.stdout.text, 'Inter-|\nface\nlo:\n');
    assert.match((await bash(`: < /dev/tcp/127.0.0.1/${port}`)).stderr.text, /refused/);
    assert.match((await bash(': < /dev/tcp/192.0.2.1/80')).stderr.text, /unreachable/);
  });

  await refusesTracesAndFloods(t, box);

  await t.test('sees no file of the host but /usr and the binds, and cannot write those', async () => {
    for (const file of [
      secret,
      '/etc/shadow',
      '/root/.bashrc',
      '/home',
      '/var/lib',
      '/sys/kernel',
      '/leaked',
    ]) {
      assert.equal((await box.exec(['test', '-e', file])).exitCode, 1, file);
    }
    assert.equal((await box.exec(['cat', '/data/shown'])).stdout.text, 'to be read');
    assert.equal((await box.exec(['cat', '/etc/resolv.conf', '/etc/ld.so.preload'])).stdout.text, '');
    assert.doesNotMatch((await box.exec(['cat', '/etc/passwd'])).stdout.text, /tester|home/);
    for (const file of ['/data/shown', '/usr/x', '/etc/passwd', '/run/rollout/x', '/etc/ld.so.preload']) {
      const write = await bash(`echo x >> ${file}`);
      assert.equal(write.exitCode, 1, file);
      assert.match(write.stderr.text, /Read-only file system|Permission denied/, file);
    }
    assert.equal((await bash('rm -f /etc/ld.so.preload')).exitCode, 1);
    assert.equal(readFileSync(shown, 'utf8'), 'to be read');
  });

  await t.test('writes elsewhere in memory, within bounds, and its neighbour sees none of it', async () => {
    const small = await Box.create(client, { limits: { memoryBytes: 64 * 1024 ** 2 } });
    assert.equal((await bash('echo mine > /file; echo mine > /tmp/file; cat /file')).stdout.text, 'mine\n');
    assert.equal((await bash('mkdir ~/x /etc/x /var/x && stat -c %U ~ ~/x')).stdout.text, 'root\nroot\n');
    assert.match((await small.exec(['ls', '/', '/tmp'])).stdout.text, /^((?!file).)*$/s);
    for (const file of ['/tmp/big', '/big', '/dev/big', '/dev/shm/big']) {
      const filled = await small.exec(['dd', 'if=/dev/zero', `of=${file}`, 'bs=1M', 'count=64']);
      assert.notEqual(filled.exitCode, 0, file);
      await small.exec(['rm', '-f', file]);
    }
    await small.release();
    // More than the 64 MiB that the runtime gives by itself.
    const large = await bash('head -c 100M /dev/zero > /large && stat -c %s /large && rm /large');
    assert.equal(large.stdout.text, '104857600\n');
  });

  await t.test("cannot change the kernel's settings, mount or make namespaces", async () => {
    const tries = [
      'cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern',
      'cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness',
      'mount -t tmpfs tmpfs /tmp',
      'umount /etc/ld.so.preload',
      'unshare -Ur true',
      'unshare -m true',
      'echo 5 > /proc/sys/user/max_user_namespaces',
    ];
    for (const attempt of tries) assert.notEqual((await bash(attempt)).exitCode, 0, attempt);
  });

  await t.test('sees no process of the host and can signal none', async () => {
    const ids = await bash('cd /proc; echo [0-9]*');
    assert.ok(ids.stdout.text.trim().split(' ').length < 8, ids.stdout.text);
    assert.notEqual((await bash(`kill -0 ${process.pid}`)).exitCode, 0);
    for (const name of ['KILL', 'STOP', 'TERM', 'HUP', 'INT'])
      await bash(`kill -${name} 1; kill -${name} -1`);
    assert.equal((await box.exec(['echo', 'alive'])).stdout.text, 'alive\n');
    const first = await bash('cd /proc/1/fd && for fd in *; do echo "$fd $(readlink "$fd")"; done');
    assert.match(first.stdout.text, /^0 \n1 \n2 \n7 \n8 \n(9 \n)?$/, 'what they are is not to be seen');
    assert.equal((await bash('ls -1 /proc/self/fd')).stdout.text, '0\n1\n2\n3\n'); // 3: the listing itself
  });

  await t.test('finds nothing of the host in any environment or argument list', async () => {
    const listing = 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" "\\n"; env';
    const all = (await bash(listing)).stdout.text;
    const shell = (await box.bash(listing)).output.text;
    for (const text of [all, shell]) {
      assert.doesNotMatch(text, /SECRET|LEAK|APPTAINER|SINGULARITY|ROLLOUT_SANDBOX|of the host/);
      assert.match(text, /^PAGER=cat$/m);
      assert.match(text, /^LD_LIBRARY_PATH=\/nowhere$/m);
    }
  });

  await t.test('gains nothing by setuid programs and has no capability', async () => {
    const status = await box.exec(['grep', '-E', 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs', '/proc/self/status']);
    assert.equal(status.stdout.text.replace(/[^01]/g, ''), `${'0'.repeat(5 * 16)}1`);
    const first = await box.exec(['grep', '-E', 'CapEff|CapBnd|NoNewPrivs', '/proc/1/status']);
    const alarm = '0000000800000000'; // CAP_WAKE_ALARM, worth nothing in a user namespace
    assert.deepEqual(first.stdout.text.match(/[0-9a-f]+$/gm), [alarm, alarm, '1']);
  });
});

test('ended or killed, an apptainer sandbox leaves nothing', { skip: WITHOUT_APPTAINER }, async (t) => {
  const { client, stateDir } = await startHost(t, 'apptainer', 8);
  const boxes = await Promise.all(Array.from({ length: 6 }, () => Box.create(client)));
  await Promise.all(boxes.map((box) => box.exec(['bash', '-c', '(setsid sleep 300 &); touch /workspace/x'])));
  await Promise.all(boxes.map((box) => box.release()));
  assert.deepEqual(readdirSync(path.join(stateDir, 'host', 'sandboxes')), []);
  assert.deepEqual(readdirSync(path.join(stateDir, 'host', 'shared', 'apptainer', 'stage')), []);
  for (const { info } of boxes) assert.deepEqual(processesWith(info.sandboxId), []);
  assert.doesNotMatch(readFileSync('/proc/self/mounts', 'utf8'), new RegExp(stateDir));
});
