import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { findLeaks } from '../../workers/sandbox-host/leaks.ts';
import { processesOf, processIds } from '../../workers/sandbox-host/processes.ts';
import { BACKENDS, Box, failure, startHost, startHostProcess, temporaryFolder, until } from './support.ts';

/** What users of comparable tools reported, and no other test here has. */
test('what broke other sandboxes and shells', async (t) => {
  const { client, stateDir } = await startHost(t);
  const box = await Box.create(client);

  await t.test(
    'a new workspace is empty, and the host finds nothing in it that the agent did not make',
    async () => {
      assert.equal((await box.exec(['ls', '-A', '/workspace'])).stdout.text, '');
      await box.bash('echo mine > file');
      const folder = path.join(stateDir, 'host', 'sandboxes', box.info.sandboxId, 'workspace');
      assert.deepEqual(readdirSync(folder), ['file']);
    },
  );

  await t.test('output just before the end of the shell is whole', async () => {
    for (let round = 0; round < 3; round++) {
      const result = await box.bash('seq 1 20000; exit 3', 30_000, 1 << 20);
      assert.equal(result.output.totalBytes, 108_894);
      assert.match(result.output.text, /\n19999\n20000\n$/);
      assert.deepEqual([result.exitCode, result.restarted], [3, true]);
    }
  });

  await t.test('a long line without an end, of bytes that are no text', async () => {
    const result = await box.bash(
      'head -c 40000000 /dev/urandom | tr -d "\\n" | grep -a "" | head -c 39000000',
      300_000,
    );
    assert.deepEqual([result.exitCode, result.output.totalBytes], [0, 39_000_000]);
    assert.ok(Buffer.byteLength(result.output.text) < 100_000);
    assert.equal((await box.bash('echo usable')).output.text, 'usable\n');
  });

  await t.test('a .git that is a link or a file of a worktree is what git says it is', async () => {
    const made = await box.bash(`
      git init -q main && git -C main -c user.name=a -c user.email=b commit -q --allow-empty -m first
      git -C main worktree add -q ../tree && cd tree && echo x > file && git add file
      git -c user.name=a -c user.email=b commit -q -m "$(cat <<'EOF'
second
EOF
)" && git log --format=%s
      mkdir ../linked && ln -s ../main/.git ../linked/.git && git -C ../linked log --format=%s; cd ..`);
    assert.equal(made.output.text, 'second\nfirst\nfirst\n');
    assert.equal(
      (await box.bash('cat tree/.git; rm -r main tree linked; ls')).output.text.split('\n')[0],
      'gitdir: /workspace/main/.git/worktrees/tree',
    );
  });

  await t.test('git and man wait for no pager, no editor and no password', async () => {
    const commits =
      'git init -q . && for i in $(seq 60); do git -c user.name=a -c user.email=b commit -q --allow-empty -m "$i"; done';
    assert.equal(
      (await box.bash(`mkdir repository; cd repository; ${commits}; git log --oneline | wc -l`)).output.text,
      '60\n',
    );
    const log = await box.bash('git log --format=%s');
    assert.deepEqual([log.exitCode, log.output.text.split('\n').length], [0, 61]);
    const editor = await box.bash('git -c user.name=a -c user.email=b commit --allow-empty');
    assert.deepEqual([editor.exitCode === 0, editor.timedOut], [false, false]);
    const password = await box.bash('git clone -q https://user@localhost/none; cd ..');
    assert.equal(password.timedOut, false);
  });

  await t.test('a writer to a pipe that nobody reads ends with its command', async () => {
    const result = await box.bash(
      'mkfifo p; (echo to nobody > p) & cat p >/dev/null & cat < p & mkfifo q; echo to nobody > q',
      500,
    );
    assert.equal(result.timedOut, true);
    assert.equal((await box.exec(['pgrep', '-c', '-x', 'cat'])).stdout.text, '0\n');
    assert.equal((await box.bash('echo usable')).output.text, 'usable\n');
  });

  await t.test('a program that stops itself, or reads the terminal, does not hold the shell', async () => {
    const stopped = await box.bash('bash -c "kill -STOP \\$\\$"; echo "status $?"', 2000);
    assert.match(stopped.output.text, /status 147|Stopped/);
    await box.bash('kill -KILL %1; wait');
    // Long enough that who waits for input is looked for: what is stopped in the background does not.
    const background = await box.bash('cat /dev/tty & sleep 0.3; echo goes on; kill -KILL $!; wait');
    assert.match(background.output.text, /goes on\n/);
    assert.equal(background.input, null);
    const { output, restarted } = await box.bash('echo usable');
    assert.match(output.text, /^usable$/m);
    assert.equal(restarted, false);
  });

  await t.test('what is stopped holds up no end of its sandbox', async () => {
    const other = await Box.create(client);
    assert.equal((await other.bash('suspend; echo on')).output.text, 'on\n');
    const program = other.exec(['bash', '-c', 'kill -STOP $$']);
    const gone = assert.rejects(program, failure('SandboxLost'));
    await until(() => processesOf(other.info.sandboxId).some(({ stopped }) => stopped), 'the stop');
    await other.release();
    await gone;
    assert.deepEqual(processesOf(other.info.sandboxId), []);
  });

  await t.test('keys cannot be typed into a terminal of the host', async () => {
    const inject = `
import fcntl, os, termios
try:
    for fd in range(3):
        for byte in b'touch /workspace/injected\\n': fcntl.ioctl(fd, termios.TIOCSTI, bytes([byte]))
except OSError as error: print(os.strerror(error.errno))`;
    const program = await box.exec(['python3', '-c', inject]);
    assert.match(program.stdout.text, /Inappropriate ioctl|Operation not permitted|Input\/output error/);
    const terminals = await box.exec(['sh', '-c', 'ls /dev/pts; cat /proc/tty/drivers >/dev/null; tty']);
    assert.equal(terminals.stdout.text, 'ptmx\nnot a tty\n');
    for (const device of ['/dev/tty1', '/dev/console', '/dev/kmsg', '/dev/mem', '/dev/fuse', '/dev/vda']) {
      assert.notEqual((await box.exec(['sh', '-c', `: < ${device}`])).exitCode, 0, device);
    }
  });

  await t.test('a command that kills its own terminal, session or every process leaves a shell', async () => {
    for (const command of [
      'kill -HUP -- -$$',
      'kill -9 -1',
      'kill -KILL 0',
      'exec 0<&- 1>&- 2>&-',
      'stty raw </dev/tty',
    ]) {
      await box.bash(command, 5000);
      // Without its standard output there is nothing to see, but its status is told all the same.
      assert.equal((await box.bash('true', 10_000)).exitCode, 0, command);
      await box.bash('exec 0</dev/null 1>/dev/tty 2>&1; stty sane -echo -onlcr </dev/tty');
    }
    assert.equal((await box.bash('echo "at the end"')).output.text, 'at the end\n');
  });

  await box.release();
  assert.deepEqual(await findLeaks(stateDir), []);
});

for (const [backend, name] of [
  ['bubblewrap', 'SIGINT'],
  ['bubblewrap', 'SIGTERM'],
  ['apptainer', 'SIGINT'],
  ['process', 'SIGHUP'],
] as const) {
  const skip = !BACKENDS.includes(backend);
  test(`${backend}: ${name} to the host ends its sandboxes: none is left an orphan`, { skip }, async (t) => {
    const { child, client } = await startHostProcess(t, temporaryFolder(t), backend);
    const box = await Box.create(client);
    const nap = `${300 + Math.random()}`;
    await box.bash(`trap "" INT TERM HUP; (setsid nohup sleep ${nap} &) >/dev/null 2>&1; sleep ${nap} &`);
    const sleepers = () => processIds().filter((pid) => read(`/proc/${pid}/cmdline`) === `sleep\0${nap}\0`);
    await until(() => sleepers().length === 2, 'the sleepers');
    child.kill(name);
    await once(child, 'exit');
    await until(() => sleepers().length === 0, 'the end of the sleepers');
  });
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return ''; // it has ended
  }
}
