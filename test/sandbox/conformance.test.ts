import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { processIds, startedWith } from '../../workers/sandbox-host/processes.ts';
import { BACKENDS, Box, failure, startHost, until } from './support.ts';

for (const backend of BACKENDS) {
  test(`${backend}: what every backend does`, async (t) => {
    const { client, stateDir } = await startHost(t, backend);
    const secret = `secret-${Math.random()}`;
    const box = await Box.create(client, { environment: { GREETING: 'hello', SECRET: secret } });
    const { sandboxId, fence, workspace } = box.info;
    // A number of its own tells this sandbox's sleepers from any others of the machine.
    const nap = `sleep ${300 + Math.random()}`;
    const noneSleeps = async () => (await box.exec(['pgrep', '-r', 'S', '-fx', nap])).exitCode === 1;

    await t.test('a shell keeps folder, variables, functions and background jobs', async () => {
      await box.bash('mkdir -p deep/er && cd deep/er; x=5; f() { echo "f $x"; }; sleep 300 & job=$!');
      const result = await box.bash('f; pwd; kill -0 $job && echo alive');
      assert.equal(result.output.text, `f 5\n${workspace}/deep/er\nalive\n`);
      assert.equal(result.cwd, `${workspace}/deep/er`);
      await box.bash('kill $job; cd; wait');
    });

    await t.test('statuses are exact', async () => {
      for (const [command, status] of [
        ['true', 0],
        ['false', 1],
        ['(exit 42)', 42],
        ['ls /nonexistent', 2],
        ['no-such-program', 127],
        ['if then', 2],
        ['false | true', 0],
        ['bash -c "kill -TERM \\$\\$"', 143],
      ] as const) {
        const result = await box.bash(command);
        assert.deepEqual([command, result.exitCode, result.restarted], [command, status, false]);
      }
      await box.bash('(exit 9)');
      assert.equal((await box.bash('echo $?')).output.text, '9\n');
    });

    await t.test('shells of other names are apart', async () => {
      await box.bash('y=main; cd /tmp');
      const other = await box.bash('echo "[$y]"; pwd', 30_000, 16_384, 'other');
      assert.equal(other.output.text, `[]\n${workspace}\n`);
      await client.closeShell(sandboxId, 'other', fence);
    });

    await t.test('exec gives streams, status and signal apart', async () => {
      const result = await box.exec(['bash', '-c', 'cat; echo problem >&2; exit 3'], 'input');
      assert.deepEqual([result.exitCode, result.signal, result.timedOut], [3, null, false]);
      assert.equal(result.stdout.text, 'input');
      assert.equal(result.stderr.text, 'problem\n');
      const killed = await box.exec(['bash', '-c', 'kill -KILL $$']);
      assert.deepEqual([killed.exitCode, killed.signal], [null, 'SIGKILL']);
      assert.equal((await box.exec(['no-such-program'])).exitCode, 127);
      assert.equal((await box.exec(['printenv', 'GREETING'])).stdout.text, 'hello\n');
    });

    await t.test('a program is over though what hides from its end holds its output', async () => {
      const hidden = `setsid env -i ${nap}`;
      const left = await box.exec(['bash', '-c', `(${hidden} &); echo done`], undefined, 20_000);
      assert.deepEqual([left.exitCode, left.timedOut, left.stdout.text], [0, false, 'done\n']);
      const late = await box.exec(['bash', '-c', `(${hidden} &); exec ${nap}`], undefined, 300);
      assert.deepEqual([late.signal, late.timedOut], ['SIGKILL', true]);
      // Without walls, what hides is not found.
      if (backend === 'process') await box.exec(['pkill', '-fx', nap]);
      await until(noneSleeps, 'its end');
      // Nobody has it open while it is on its way.
      const sent = `
import os, socket
ends = socket.socketpair()
socket.send_fds(ends[0], [b'x'], [1, 2])
for end in ends: os.set_inheritable(end.fileno(), True)
os.closerange(1, 3)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execve('/bin/sleep', ['sleep', '${nap.slice(6)}'], {})`;
      const away = await box.exec(['python3', '-c', sent], undefined, 20_000);
      assert.deepEqual([away.exitCode, away.timedOut], [0, false]);
      await box.exec(['pkill', '-fx', nap]);
      await until(noneSleeps, 'its end');
    });

    await t.test('what the environment holds shows in no list of processes', async () => {
      const { exitCode } = await box.exec(['sh', '-c', `[ "$SECRET" ]`]);
      assert.equal(exitCode, 0);
      await box.bash('[ "$SECRET" ] && sleep 300 &');
      const held = () => processIds().some((pid) => startedWith(pid, `SECRET=${secret}`));
      assert.ok(held(), 'it is in an environment');
      assert.deepEqual(
        processIds()
          .map(commandLine)
          .filter((line) => line.includes(secret)),
        [],
      );
      await box.bash('kill $!; wait');
    });

    await t.test('a shell that has ended can be asked for anything', async () => {
      for (const end of ['exit 3', 'kill -9 $$']) {
        const ended = box.bash(end, 30_000, 1000, 'ended');
        await client.interruptShell(sandboxId, 'ended', fence);
        await ended;
        await client.interruptShell(sandboxId, 'ended', fence);
        for (let times = 0; times < 2; times++) await client.closeShell(sandboxId, 'ended', fence);
        await client.interruptShell(sandboxId, 'ended', fence);
        assert.equal((await box.bash('echo again', 30_000, 1000, 'ended')).output.text, 'again\n');
      }
      await client.closeShell(sandboxId, 'ended', fence);
    });

    await t.test('exec opens its streams by name', async () => {
      const argv = ['bash', '-c', 'cat /dev/stdin > /dev/stdout; echo two > /dev/stderr'];
      const result = await box.exec(argv, 'one');
      assert.deepEqual([result.exitCode, result.stdout.text, result.stderr.text], [0, 'one', 'two\n']);
    });

    await t.test('exec ends with all that it started, grandchildren that hold its output too', async () => {
      const argv = ['bash', '-c', `${nap} & (setsid ${nap} &); echo done`];
      assert.equal((await box.exec(argv)).stdout.text, 'done\n');
      const late = await box.exec(['bash', '-c', `echo early; (setsid ${nap} &); ${nap}`], '', 500);
      assert.deepEqual([late.timedOut, late.signal, late.stdout.text], [true, 'SIGKILL', 'early\n']);
      await until(noneSleeps, 'the end of the sleepers');
    });

    await t.test('files are written and read whole, whatever is in them', async () => {
      const content = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7919) % 256));
      const target = `${workspace}/a b/ü'"$x`;
      await client.writeFile(sandboxId, {
        fence,
        path: target,
        content: content.toString('base64'),
        mode: 0o600,
      });
      const read = await client.readFile(sandboxId, { fence, path: target });
      assert.equal(read.totalBytes, content.length);
      assert.deepEqual(Buffer.from(read.content, 'base64'), content);
      const part = await client.readFile(sandboxId, { fence, path: target, maxBytes: 100 });
      assert.deepEqual(Buffer.from(part.content, 'base64'), content.subarray(0, 100));
      assert.equal(
        (await box.bash(`stat -c %a "$HOME" >/dev/null; stat -c %a ${workspace}/a*/*`)).output.text,
        '600\n',
      );
      await assert.rejects(
        client.readFile(sandboxId, { fence, path: `${workspace}/none` }),
        failure('HandlerFailed', /none is not a file/),
      );
    });

    await t.test('what is too much to be shown is whole in a file that only the host writes', async () => {
      const numbers = Array.from({ length: 200_000 }, (_, index) => `${index + 1}\n`).join('');
      const { output } = await box.bash('seq 200000; true', 60_000, 1000);
      assert.equal(output.totalBytes, numbers.length);
      assert.equal(output.omittedBytes, numbers.length - 1000);
      const shell = output.file as NonNullable<typeof output.file>;
      assert.deepEqual([shell.bytes, shell.whole], [numbers.length, true]);
      const { stdout } = await client.exec(sandboxId, {
        ...{ fence, argv: ['seq', '200000'], timeoutMs: 60_000, maxOutputBytes: 1000 },
      });
      const exec = stdout.file as NonNullable<typeof stdout.file>;
      for (const { path } of [shell, exec]) {
        const read = await client.readFile(sandboxId, { fence, path, maxBytes: 10_000_000 });
        assert.equal(Buffer.from(read.content, 'base64').toString(), numbers);
        if (backend !== 'process')
          assert.notEqual((await box.exec(['bash', '-c', `echo >> ${path}`])).exitCode, 0);
      }
      assert.equal((await box.bash(`grep -c 99 ${shell.path}`)).output.file, undefined);
    });

    await t.test('kill leaves no process but the first, and says how many there were', async () => {
      await box.bash(
        `cd /tmp; for i in 1 2 3 4 5; do ${nap} & done; (setsid nohup ${nap} &) >/dev/null 2>&1`,
      );
      const receipt = await client.kill(sandboxId, fence);
      assert.ok(receipt.processesKilled >= 7, `${receipt.processesKilled} killed`);
      assert.ok(await noneSleeps());
      const { output, restarted } = await box.bash('pwd');
      assert.deepEqual([output.text, restarted], [`${workspace}\n`, true], 'and shells say what they lost');
    });

    await t.test('release is idempotent, tells the watcher and leaves nothing', async () => {
      const watch = client.watch(sandboxId, { fence });
      const receipt = await box.release();
      assert.equal(receipt.released, true);
      assert.ok(receipt.processesKilled >= 1);
      assert.deepEqual(await watch, { event: 'released' });
      assert.equal((await box.release()).processesKilled, 0);
      await assert.rejects(box.bash('true'), failure('SandboxLost'));
      assert.deepEqual(readdirSync(path.join(stateDir, 'host', 'sandboxes')), []);
      assert.ok(existsSync(path.join(stateDir, 'host', 'ledgers')));
      assert.equal((await client.stats()).sandboxes, 0);
    });
  });
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return ''; // it has ended
  }
}
