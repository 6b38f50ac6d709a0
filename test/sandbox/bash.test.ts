import assert from 'node:assert/strict';
import test from 'node:test';
import { Box, startHost } from './support.ts';

test('a persistent bash', async (t) => {
  const { client } = await startHost(t);
  const box = await Box.create(client);
  /** Runs a command and checks output, status and whether the shell had to be replaced. */
  const expect = async (command: string, output: string, exitCode = 0, restarted = false) => {
    const result = await box.bash(command);
    assert.deepEqual(
      { command, output: result.output.text, exitCode: result.exitCode, restarted: result.restarted },
      { command, output, exitCode, restarted },
    );
    assert.deepEqual([result.timedOut, result.output.omittedBytes], [false, 0]);
    return result;
  };

  await t.test('survives what ends or silences ordinary sessions', async () => {
    await expect('set -euo pipefail; false', '', 1, true);
    await expect('echo usable', 'usable\n');
    await expect('set -u; echo "$nope"; echo not reached', 'bash: nope: unbound variable\n', 1);
    await expect('set +u; echo usable', 'usable\n');
    await expect('exec >/dev/null 2>&1', '');
    await expect('echo hidden', '');
    await expect('exec >/dev/tty 2>&1; echo back', 'back\n');
    await expect('PROMPT_COMMAND=false; PS1="> "; trap - EXIT; echo x', 'x\n');
    await expect('echo y', 'y\n');
    await expect('PS1=; alias printf=false; printf() { :; }; echo z', 'z\n');
    await expect('unset -f printf; unalias printf; echo z', 'z\n');
    await expect('.() { echo no; }; source() { echo no; }; alias builtin=false trap=false .=false', '');
    await expect('unalias -a; unset -f . source; echo z', 'z\n');
    await expect('declare -i PS1; unset __rollout_call __rollout_told', '');
    await expect('echo z', 'z\n');
    // It ends with the line that it reads next, or before it.
    const [ends, next] = [await box.bash('set -t'), await box.bash('echo ran')];
    assert.deepEqual([ends.exitCode, next.restarted], [0, true]);
    assert.deepEqual([next.exitCode, next.output.text], next.exitCode === 0 ? [0, 'ran\n'] : [null, '']);
    await expect('sleep infinity & exit 1', '', 1, true);
    await expect('exec true', '', 0, true);
    await expect('kill -9 $$', '', 137, true);
    await expect('exit 300', '', 44, true);
    await expect('return 5', '', 5);
    await expect('logout', "bash: logout: not login shell: use `exit'\n", 1);
    await box.bash('break; continue');
    await expect('echo usable', 'usable\n');
  });

  await t.test('keeps the folder over a restart', async () => {
    const result = await expect('mkdir -p "a \'b"; cd "a \'b"; exit 7', '', 7, true);
    assert.equal(result.cwd, "/workspace/a 'b");
    await expect('pwd; cd /workspace', "/workspace/a 'b\n");
    const gone = await expect('mkdir gone; cd gone; rmdir ../gone; exit 2', '', 2, true);
    assert.equal(gone.cwd, '/workspace', 'or the nearest that is there');
    await expect('pwd', '/workspace\n');
    const deep = 'mkdir deep; cd deep; for i in $(seq 60); do mkdir $name; cd $name; done';
    await expect(`name=$(printf %0200d 0); ${deep}; echo \${#PWD}`, '12075\n');
    const back = await expect('exit 3', '', 3, true);
    assert.equal(back.cwd, '/workspace', 'no path leads there at once');
    await expect('rm -r deep; cd /tmp; cd /workspace', '');
  });

  await t.test('takes any text as it is', async () => {
    await expect('echo "done!!" !x !$ "$(echo \'!!\')**"', 'done!! !x !$ !!**\n');
    await expect("printf 'a\\tb'\n\techo \tc", 'a\tbc\n');
    await expect('echo trailing;', 'trailing\n');
    await expect('# only a comment', '');
    await expect('', '');
    await expect('echo one \\\n  two', 'one two\n');
    await expect("cat <<'EOF' 2>&1 | tail -1\n  first\n    $second `x` \\n\nEOF", '    $second `x` \\n\n');
    await expect('true && echo "$(cat <<\'EOF\'\nit\'s "quoted"\nEOF\n)"', 'it\'s "quoted"\n');
    const lines = Array.from(
      { length: 120 },
      (_, index) => `${' '.repeat(index % 7)}line ${index}: "$x" 'y' \\`,
    );
    await expect(`cat <<'END OF IT'\n${lines.join('\n')}\nEND OF IT`, `${lines.join('\n')}\n`);
    const long = 'ü'.repeat(5000) + '\t\x03\x04\x1a'.repeat(100);
    await expect(`printf %s '${long}' | wc -c; echo ${'x'.repeat(100_000)} | wc -c`, '10400\n100001\n');
    await expect(`: '${'y'.repeat(3_000_000)}'; echo large`, 'large\n');
  });

  await t.test('a syntax error is that of its own command', async () => {
    const wrong = [
      '[[ a =~ ^a (b) ]]',
      '[[ ( a',
      'eval "[[ a (b ]]"',
      'case x in',
      'a=(1',
      'echo $((1',
      ')',
      'f() {',
    ];
    for (const command of wrong) {
      const { output, exitCode } = await box.bash(command);
      assert.deepEqual(
        [/^bash: .*line 1: |line 2: /.test(output.text), exitCode !== 0],
        [true, true],
        command,
      );
      assert.doesNotMatch(output.text, /PROMPT_COMMAND/);
      await expect('[[ a == a ]] && echo right', 'right\n');
    }
  });

  await t.test('gives programs that read an end of input, and loses no later command', async () => {
    await expect('cat; read x; echo "read: $?"; cat | wc -c', 'read: 1\n0\n');
    await expect('python3', '');
    const input = await box.bash('python3 -c "input()"');
    assert.match(input.output.text, /EOFError/);
    await expect('head -1 & wait 2>/dev/null; echo after', 'after\n');
    await expect('echo next', 'next\n');
  });

  await t.test('needs no pager, no colour and no width', async () => {
    await box.bash('seq 1 500 > numbers');
    await expect('"$PAGER" numbers | tail -1; tput colors 2>/dev/null', '500\n-1\n', 0);
    const wide = 'w'.repeat(3000);
    await expect(`echo ${wide}`, `${wide}\n`);
    await expect('ls --color=auto -d numbers', 'numbers\n');
  });

  await t.test('shows every byte as it came, undecodable ones replaced', async () => {
    await expect("printf '\\xff\\xfeok\\n'", '\ufffd\ufffdok\n');
    await expect("printf '\\xe4\\xf6\\n' # ISO-8859-1", '\ufffd\ufffd\n');
    await expect('for b in e2 82 ac; do printf "\\\\x$b"; sleep 0.01; done', '€');
    await expect("printf 'a\\r\\nb\\rc\\n'", 'a\nb\rc\n');
    await expect("printf '\\001\\002\\033[1mx\\n'", '\x01\x02\x1b[1mx\n');
    await expect('stty sane </dev/tty', '');
    await expect('stty raw </dev/tty; stty echo </dev/tty; echo a', 'a\n');
    await expect('echo b', 'b\n');
    await expect('echo quiet', 'quiet\n');
    await expect('echo quiet again', 'quiet again\n');
  });

  await t.test(
    'traces and traps see what was asked for, over many commands, and nothing of the shell itself',
    async () => {
      await expect('set -x; echo traced; set +x', '++ echo traced\ntraced\n++ set +x\n');
      await expect('set -x', '');
      await expect('(exit 3)', '++ exit 3\n', 3);
      await expect('echo $?', '++ echo 3\n3\n');
      await expect('set +x', '++ set +x\n');
      await expect('set -v', '');
      await expect('echo a\necho b', 'echo a\na\necho b\nb\n');
      await expect('set +v', 'set +v\n');
      await expect('trap "echo err \\$LINENO" ERR', '');
      await expect('true\nfalse', 'err 2\n', 1);
      await expect('echo $?; (exit 4)', '1\nerr 1\n', 4);
      await expect('trap - ERR; false', '', 1);
      await expect("trap 'echo \"it'\\''s\n$BASH_COMMAND\"' DEBUG", '');
      await expect('echo x', "it's\necho x\nx\n");
      await expect('(exit 5)', '', 5);
      await expect('trap - DEBUG', "it's\ntrap - DEBUG\n");
      await expect('echo y; trap -p ERR DEBUG', 'y\n');
      await expect("trap 'echo returned' RETURN; trap - RETURN", '');
    },
  );

  await t.test('no alias, function, setting or variable changes what it reports with', async () => {
    const bent = [
      ...[
        '{=echo',
        '{={ sleep 9; ',
        '{=cat <<E',
        "{='",
        '}=false',
        ':=false',
        'builtin=false',
        '__rollout_begin=false',
      ],
    ].map((alias) => `alias "${alias}"`);
    const names = ['begin', 'reset', 'exit'].map((name) => `__rollout_${name}`);
    bent.push('set -o posix; alias "{=echo"', 'shopt -u expand_aliases; set -o posix; trap() { :; }');
    bent.push(
      `enable -n . : enable printf return set shopt trap; ${names.join('() { sleep 9; }; ')}() { sleep 9; }`,
    );
    for (const command of bent) {
      await box.bash(command);
      await expect('echo usable; (exit 3)', 'usable\n', 3);
      await expect('echo $?', '3\n');
      await box.bash('unalias -a; set +o posix; shopt -s expand_aliases; unset -f trap');
    }
    await expect('alias hello="echo hi"; shopt -q expand_aliases', '');
    await expect('hello; shopt -u expand_aliases', 'hi\n');
    await expect('shopt -q expand_aliases || hello 2>/dev/null', '', 127);
    await expect('shopt -s expand_aliases; unalias hello', '');
  });

  await t.test('what cannot be typed to any more is replaced soon, and runs nothing in part', async () => {
    const bent = [
      'readonly PROMPT_COMMAND="sleep 90"',
      "readonly PS0='$(sleep 90)'",
      'stty intr b </dev/tty',
    ];
    for (const command of [...bent, 'stty kill : </dev/tty', 'stty inlcr </dev/tty']) {
      await expect(command, '');
      const { exitCode, restarted, timedOut } = await box.bash('echo x >> ran; (exit 3)', 200_000);
      assert.deepEqual([restarted, timedOut], [true, false], command);
      // It may have ended before the command was typed.
      await expect('cat ran 2>/dev/null; rm -f ran', exitCode === null ? '' : 'x\n');
    }
  });

  await t.test('says so when its own means were taken from it, and goes on', async () => {
    for (const command of ['builtin() { :; }', 'ulimit -n 3', 'exec bash']) {
      const { restarted, timedOut } = await box.bash(command, 200_000);
      assert.deepEqual([restarted, timedOut], [true, false], command);
      await expect('echo usable', 'usable\n');
    }
    await expect('kill -STOP $$; echo on', 'on\n');
  });

  await t.test('programs that ask the terminal are told that nobody types there', async () => {
    const ask = async (command: string) => {
      const { output, exitCode, input, timedOut, restarted } = await box.bash(command, 200_000);
      assert.deepEqual([timedOut, restarted], [false, false], command);
      return { text: output.text, exitCode, input };
    };
    const asked = await ask('read -p "name? " x </dev/tty; echo "[$x] $?"');
    assert.deepEqual(asked, { text: 'name? [] 1\n', exitCode: 0, input: 'ended' });
    const password = await ask('python3 -c "import getpass; getpass.getpass()"');
    assert.deepEqual([/EOFError/.test(password.text), password.exitCode, password.input], [true, 1, 'ended']);
    const poll = 'import select; p = select.poll(); p.register(2, select.POLLIN); print(len(p.poll()))';
    assert.equal((await ask(`python3 -c '${poll}'; head -1 /dev/tty`)).input, 'ended');
    const keys = 'import sys, tty; tty.setraw(2); f = open(2, "rb", 0)\nwhile True: f.read(1)';
    assert.equal((await ask(`python3 -c '${keys}'`)).input, 'stopped');
    await expect('stty sane -echo -onlcr </dev/tty; echo usable', 'usable\n');
    assert.equal((await ask('sleep 0.3; echo no question')).input, null);
  });

  await t.test('says nothing of jobs that end elsewhere than they were begun', async () => {
    await expect('mkfifo /tmp/go; cd /; cat /tmp/go & cd /tmp', '');
    await expect(': > go; while kill -0 $! 2>/dev/null; do sleep 0.01; done; rm go', '');
    await expect('cd /workspace; echo x', 'x\n');
  });

  await t.test('nor of jobs whose commands have several lines', async () => {
    const [end, wait] = ['kill $!; sleep 0.1; echo done', 'sleep 0.1; echo done'];
    await expect(`while :; do sleep 0.01; done & ${end}`, 'done\n');
    await expect(`(cd /; while :; do sleep 0.01; done >f; true) & ${end}`, 'done\n');
    await expect(`for i in 1; do if true; then :; else :; fi; done & ${wait}`, 'done\n');
    await expect(`for ((i=0;i<1;i++)); do :; done & ${wait}`, 'done\n');
    await expect(`if true; then :; elif false; then :; fi & ${wait}`, 'done\n');
    await expect(`case a in a) :;; esac & ${wait}`, 'done\n');
    await expect(`cat >f <<'END' &\ndo\nEND\n${wait}`, 'done\n');
    await expect(`: & ${wait}`, 'done\n');
  });

  await t.test('output of background jobs hangs nothing and confuses nothing', async () => {
    await box.bash('(while :; do echo noise; sleep 0.01; done) & noise=$!');
    for (let round = 0; round < 20; round++) {
      const result = await box.bash(`(exit ${round})`);
      assert.equal(result.exitCode, round);
      assert.match(result.output.text, /^(noise\n)*$/);
    }
    await box.bash('kill $noise; wait $noise');
    await expect('echo silence', 'silence\n');
    await box.bash('pids=; for i in $(seq 60); do yes >/dev/null & pids="$pids $!"; done');
    await expect('kill $pids; wait; echo "$?"', '0\n');
    await expect('sleep 0.01 & sleep 0.1', '');
    await expect('sleep 30 & kill -STOP $!; sleep 0.1; printf part', 'part');
    await box.bash('kill -KILL $!; wait');
    await expect('(exit 5) & sleep 0.1; wait $!; echo $?', '5\n');
    const listed = await box.bash('sleep 100 & jobs; kill %1; wait');
    assert.match(listed.output.text, /^\[1\].*Running +sleep 100 &\n/);
    await expect('cat & wait; echo "cat ends: $?"', 'cat ends: 0\n');
    await expect('echo calm', 'calm\n');
  });

  await t.test('on a timeout keeps what was printed and stays usable', async () => {
    const cases: [command: string, output: string, restarted: boolean][] = [
      ['echo part; sleep 100; echo never', 'part\n', false],
      ['echo part; while :; do sleep 0.01; done', 'part\n', false],
      ['echo part; python3 -c "import time; time.sleep(100)" 2>/dev/null', 'part\n', false],
      ['echo part; mkfifo pipe; cat pipe', 'part\n', false],
      ["echo part; trap '' INT; sleep 100", 'part\n', false],
      ["echo part; trap '' INT TERM; while :; do :; done", 'part\n', true],
    ];
    const sleepers = async () =>
      (await box.exec(['pgrep', '-r', 'S', '-x', 'sleep|cat|python3'])).stdout.text;
    const before = await sleepers();
    await box.bash('kept=yes');
    for (const [command, output, restarted] of cases) {
      const result = await box.bash(command, 400);
      assert.equal(result.timedOut, true, command);
      assert.equal(result.output.text.startsWith(output), true, command);
      assert.doesNotMatch(result.output.text, /never/);
      assert.equal(result.restarted, restarted, command);
      const next = restarted ? '[] 0\n' : `[yes] ${result.exitCode}\n`;
      assert.equal((await box.bash('echo "[$kept] $?"')).output.text, next, command);
      await box.bash('trap - INT TERM; kept=yes');
    }
    assert.equal(await sleepers(), before, 'what the commands started is gone');
  });

  await t.test('an earlier background job outlives the timeout of a later command', async () => {
    await box.bash('sleep 200 & job=$!');
    await new Promise((resolve) => setTimeout(resolve, 50)); // start times are counted in hundredths
    await box.bash('sleep 100 & sleep 99', 400);
    await expect('kill -0 $job && echo alive', 'alive\n');
    await box.bash('kill $job; wait $job');
  });

  await t.test('can be interrupted', async () => {
    const { sandboxId, fence } = box.info;
    const running = box.bash('echo started; touch /tmp/started; sleep 100');
    while ((await box.exec(['test', '-e', '/tmp/started'])).exitCode !== 0);
    await client.interruptShell(sandboxId, 'main', fence);
    const result = await running;
    assert.deepEqual([result.exitCode, result.timedOut, result.restarted], [130, false, false]);
    await expect('echo on', 'on\n');
  });

  await t.test('leaves out the middle of long output and counts it', async () => {
    const result = await box.bash("seq 1 100000; printf 'the end'", 200_000, 1000);
    const { text, totalBytes, omittedBytes } = result.output;
    assert.equal(totalBytes, 588_895 + 7);
    assert.equal(omittedBytes, totalBytes - 1000);
    assert.match(text, /^1\n2\n3\n/);
    assert.match(text, new RegExp(`\\n\\[\\.\\.\\. ${omittedBytes} bytes left out \\.\\.\\.\\]\\n`));
    assert.match(text, /100000\nthe end$/);
  });

  await t.test('200 MB of output take bounded memory', async () => {
    const before = process.memoryUsage().rss;
    const result = await box.bash('head -c 200000000 /dev/zero | tr "\\0" x; echo; echo end', 600_000);
    assert.deepEqual([result.exitCode, result.output.totalBytes], [0, 200_000_005]);
    assert.match(result.output.text, /x\nend\n$/);
    const { file } = result.output;
    assert.deepEqual([file?.bytes, file?.whole], [200_000_005, true]);
    assert.equal((await box.bash(`tr -d x < ${file?.path}`)).output.text, '\nend\n');
    assert.ok(process.memoryUsage().rss - before < 150 * 1024 ** 2);
  });

  await t.test('one command waits for the other', async () => {
    const [first, second] = await Promise.all([box.bash('sleep 0.1; n=1'), box.bash('echo "$n"')]);
    assert.deepEqual([first.exitCode, second.output.text], [0, '1\n']);
  });
});
