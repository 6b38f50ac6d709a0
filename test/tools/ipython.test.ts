import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import test from 'node:test';
import { ipython } from '../../activities/tools/ipython.ts';
import { loadTools } from '../../config/tools.ts';
import { SandboxLimits } from '../../contracts/sandbox.ts';
import { failure, until } from '../sandbox/support.ts';
import { Bench } from './support.ts';

const wanted = ipython.sandbox?.(loadTools()) ?? {};

/** A PNG of one pixel. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

test('the kernel', async (t) => {
  const bench = await Bench.start(t, wanted);
  const run = (code: string, timeoutMs?: number) => bench.call(ipython, { code }, timeoutMs);
  /** Runs code and checks what the model sees, and whether the code raised. */
  const expect = async (code: string, text: string, exitCode: number | null = 0, status = 'ok') =>
    assert.deepEqual(await run(code), { status, exitCode, text }, code);
  /** Processes that run in the sandbox under this name, the shells of the tools aside. */
  const running = async (name: string) =>
    (await bench.box.exec(['pgrep', '-c', '-f', name])).stdout.text.trim();

  await t.test('shows what code prints, its last value, and keeps variables', async () => {
    await expect('x = 41', '');
    await expect('import sys\nprint("out")\nprint("err", file=sys.stderr)\nx + 1', 'out\nerr\n42');
    await expect('"é€😀\\tx"', "'é€😀\\tx'");
    await expect('print("half \\ud83d"); print("on")', 'half \ufffd\non');
    await expect(
      'x = "\ud83d"',
      'the code holds half of a surrogate pair, which is no character: it was not run',
      1,
    );
    await expect('print("no end", end="")', 'no end');
    await expect('print("no end", end=""); 7', 'no end\n7');
    await expect('import os; os.system("echo from a program"); None', 'from a program');
    await expect(`os.system("printf '€%.0s' $(seq 3000)"); None`, '€'.repeat(3000));
    await expect('!echo shell; cat; pwd', 'shell\n/workspace');
    await expect('async def f(): return 5\nawait f()', '5');
    await expect('# nothing', '');
    await expect(`len("${'y'.repeat(300_000)}")`, '300000');
  });

  await t.test('errors have a traceback without colours', async () => {
    for (const [code, error] of [
      ['def f():\n    return 1 / 0\nf()', 'ZeroDivisionError: division by zero'],
      ['x = (', 'SyntaxError'],
      ['raise ValueError("é")', 'ValueError: é'],
      ['import nothing_like_it', "ModuleNotFoundError: No module named 'nothing_like_it'"],
    ] as const) {
      const outcome = await run(code);
      assert.deepEqual([outcome.status, outcome.exitCode], ['ok', 1], code);
      assert.ok(outcome.text.includes(error), outcome.text);
      assert.ok(!outcome.text.includes('\x1b'), outcome.text);
    }
    assert.match((await run('def f():\n    return 1 / 0\nf()')).text, /----> 2 +return 1 \/ 0|line 2/);
    await expect('x', '41');
  });

  await t.test('reading from the keyboard is an error and hangs nothing', async () => {
    for (const code of ['input("name? ")', 'import getpass; getpass.getpass()', 'breakpoint()']) {
      const outcome = await run(code);
      assert.equal(outcome.status, 'ok');
      assert.match(outcome.text, /does not support input requests/, code);
    }
    await expect('sys.stdin.read()', "''");
    await expect('import subprocess; subprocess.run(["cat"]).returncode', '0');
  });

  await t.test('images are files of the workspace, other displays are text', async () => {
    await run('from IPython.display import *');
    const image = `Image(data=__import__("base64").b64decode("${PIXEL}"))`;
    const { text } = await run(`display(${image}); display(${image}); HTML("<b>bold</b>")`);
    const [, first, second] =
      /\[image\/png saved as (images\/\S+-1\.png)\]\n[\s\S]*\[image\/png saved as (images\/\S+-2\.png)\]/.exec(
        text,
      ) ?? [];
    assert.deepEqual(await bench.sandbox.readFile(`/workspace/${first}`), Buffer.from(PIXEL, 'base64'));
    assert.deepEqual(await bench.sandbox.readFile(`/workspace/${second}`), Buffer.from(PIXEL, 'base64'));
    const svg = '<svg xmlns="http://www.w3.org/2000/svg"/>';
    assert.match((await run(`display(SVG('${svg}'))`)).text, /\[image\/svg\+xml saved as images\/\S+\.svg\]/);
    await expect('display({"text/html": "<b>x</b>"}, raw=True)', '<b>x</b>');
    await expect('display({"application/x-odd": "x"}, raw=True)', '[application/x-odd, not shown]');
    await expect('Markdown("*x*")', '<IPython.core.display.Markdown object>');
    assert.match((await run('len?')).text, /Return the number of items in a container/);
    for (const [type, value] of [
      ['image/png', '"no base64!"'],
      ['image/png', '5'],
      ['image/svg+xml', 'None'],
    ]) {
      const { text: said } = await run(`display({"${type}": ${value}, "text/plain": ["x"]}, raw=True); x`);
      assert.equal(said, `["x"]\n[${type} could not be saved: it is no image]\n41`);
    }
    await bench.sh('rm -r images; touch images');
    assert.match((await run(image)).text, /image\/png could not be saved: /);
  });

  await t.test('output that code closes, or takes away, is there again in the next cell', async () => {
    for (const code of ['sys.stdout.close()', 'sys.stdout = sys.stderr = None', 'os.close(1); os.close(2)']) {
      await expect(code, '');
      await expect('print("out"); os.system("echo program"); None', 'out\nprogram');
    }
    await expect('import io; sys.stdout = io.StringIO(); print("kept")', '');
    await expect('sys.stdout, x = sys.__stdout__, sys.stdout.getvalue(); x', "'kept\\n'");
    await expect('print("to descriptor 1"); sys.stdout = None; x = 41', 'to descriptor 1');
  });

  await t.test('the middle of long output is left out and counted', async () => {
    const { text } = await run('for i in range(20_000): print(i)\nprint("the end")');
    const [, count] = /\n\[\.\.\. (\d+) characters left out \.\.\.\]\n/.exec(text) ?? [];
    assert.equal(Number(count), 108_890 + 8 - 16_000);
    assert.match(text, /^0\n1\n2\n[\s\S]*\n19999\nthe end$/);
    const flood = await run('for i in range(1000): display(i)\nprint("done")');
    assert.match(flood.text, /done$/);
  });

  await t.test('a timeout interrupts, keeps what was printed, and the session goes on', async () => {
    await run('kept = "yes"');
    for (const code of [
      'print("part", flush=True)\nwhile True: pass',
      'print("part", flush=True)\nimport time; time.sleep(100)',
      'print("part", flush=True)\nimport subprocess; subprocess.run(["sleep", "100"])',
      'print("part", flush=True)\nl = []\nwhile True: l.append(1)',
      'print("part")\n!sleep 100',
      'print("part", flush=True)\nimport asyncio; await asyncio.sleep(100)',
    ]) {
      const outcome = await run(code, 700);
      assert.deepEqual([outcome.status, outcome.exitCode], ['timeout', null], outcome.text);
      assert.match(outcome.text, /^part\n[\s\S]*\[interrupted after 0\.7 s\]$/, code);
      await expect('kept', "'yes'");
    }
    const flood = await run('while True: print("x" * 1000)', 700);
    assert.match(flood.text, /^x{1000}\n[\s\S]*characters left out[\s\S]*\[interrupted after 0\.7 s\]$/);
    await expect('kept', "'yes'");
    await until(async () => (await running('^sleep 100')) === '0', 'the programs are gone');
  });

  await t.test('code that will not be interrupted is ended with all it started', async () => {
    await run('import subprocess; subprocess.Popen(["sleep", "300"], start_new_session=True)');
    await run(
      'import os, signal\nif os.fork() == 0:\n    os.setsid()\n    os.execvp("sleep", ["sleep", "301"])',
    );
    await until(async () => (await running('^sleep 30')) === '2', 'the fork has become its program');
    const stubborn = 'import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass';
    const outcome = await run(stubborn, 500);
    assert.equal(outcome.status, 'timeout');
    assert.match(
      outcome.text,
      /\[interrupted after 0\.5 s\]\n\[the next call has a new kernel, without the var/,
    );
    assert.equal(await running('^sleep 30'), '0', 'nothing that the kernel started is left');
    assert.equal(await running('ipykernel_launcher.py -f'), '0');
    assert.match((await run('kept')).text, /NameError/);
  });

  await t.test('a kernel that dies is replaced, and says so', async () => {
    await run('import subprocess, os; subprocess.Popen(["sleep", "302"], start_new_session=True)');
    const killed = await run('print("last ", end=""); print("words")\nos.kill(os.getpid(), 9)');
    assert.deepEqual(killed, {
      status: 'restarted',
      exitCode: null,
      text: 'last words\n[the kernel died (killed by signal 9)]\n[the next call has a new kernel, without the variables]',
    });
    assert.equal(await running('^sleep 302'), '0');
    // As if a flood had lost a message: it is not shown by a later cell.
    await run('import os, sys; print("x" * 20_000); sys.stdout.echo.write("lost")');
    const later = await run('print("last"); os.kill(os.getpid(), 9)');
    assert.match(later.text, /^last\n\[the kernel died/);
    await expect('import os; 1', '1');
    assert.match((await run('os._exit(3)')).text, /^\[the kernel died \(exit status 3\)\]/);
    assert.deepEqual(await run('exit()'), {
      status: 'restarted',
      exitCode: 0,
      text: '[the code has ended the kernel]\n[the next call has a new kernel, without the variables]',
    });
    await expect('import os, threading; threading.Timer(0.1, os._exit, [0]).start()', '');
    await until(async () => (await running('ipykernel_launcher.py -f')) === '0', 'the kernel has ended');
    const next = await run('2');
    assert.equal(next.status, 'restarted');
    assert.match(
      next.text,
      /^2\n\[the kernel had ended \(exit status 0\): this is a new one, without its variables\]$/,
    );
    await expect('3', '3');
    const garbled = await run('get_ipython().kernel.session.key = b"another"');
    assert.equal(garbled.status, 'restarted');
    assert.match(garbled.text, /^\[the kernel said what cannot be understood \(Invalid Signature/);
    await expect('import shutil, sys, os; shutil.rmtree(os.environ["IPYTHONDIR"])', '');
    assert.match((await run('os._exit(4)')).text, /^\[the kernel died \(exit status 4\)\]/);
    await expect('4', '4');
  });

  await t.test('so is the driver that the kernel hangs on', async () => {
    await run('import os, subprocess; subprocess.Popen(["sleep", "303"], start_new_session=True)');
    const outcome = await run('os.kill(os.getppid(), 9); import time; time.sleep(100)');
    assert.equal(outcome.status, 'restarted');
    assert.match(outcome.text, /^\[the kernel ended: /);
    await expect('4', '4');
    assert.equal(await running('^sleep 303'), '0');
    assert.equal(await running('ipykernel_launcher.py -f'), '1');
    await expect('import os, threading; threading.Timer(0.1, os.kill, [os.getppid(), 19]).start()', '');
    await until(
      async () => (await bench.sh('pgrep -cr T python || :')).trim() === '1',
      'it has been stopped',
    );
    await expect('5', '5');
    const begun = performance.now();
    const stopped = await run('os.kill(os.getppid(), 19)', 1000);
    assert.deepEqual([stopped.status, stopped.text], ['restarted', '[the kernel ended: it was killed]']);
    const seconds = (performance.now() - begun) / 1000;
    assert.ok(seconds < 20, `it was waited for ${seconds} s`);
    await expect('6', '6');
  });

  await t.test('modules in the workspace do not keep a kernel from starting', async () => {
    await bench.sh(
      'for m in zmq json ipykernel jupyter_client runpy; do echo "raise SystemExit(9)" > $m.py; done',
    );
    await run('import os; os._exit(0)');
    await expect('1 + 1', '2');
    await bench.sh('rm *.py; echo "value = 5" > mine.py');
    await expect('import mine; mine.value', '5');
  });

  await t.test('the same call never runs twice, whoever asks again', async () => {
    await run('n = 0');
    const again = () => bench.call(ipython, { code: 'n += 1; n' }, 30_000, 'once.0');
    assert.deepEqual(
      (await Promise.all([again(), again()])).concat(await again()).map(({ text }) => text),
      ['1', '1', '1'],
    );
  });
});

test('an abort ends what runs, and a release all that it started', async (t) => {
  const bench = await Bench.start(t, wanted);
  const { client, info } = bench.box;
  await bench.call(ipython, { code: 'import subprocess; p = subprocess.Popen(["sleep", "400"])' });
  const running = bench.call(ipython, { code: 'open("started", "w").close()\nwhile True: pass' }, 600_000);
  await until(async () => (await bench.box.exec(['test', '-e', 'started'])).exitCode === 0, 'the code runs');
  await client.abort(info.sandboxId, { reason: 'user' });
  assert.equal((await running).status, 'restarted');
  assert.ok((await bench.box.release()).processesKilled >= 4);
});

test('a kernel that cannot start says why, and starts when it can', async (t) => {
  const environment = { ...wanted.environment, PYTHONPATH: '/workspace/broken' };
  const bench = await Bench.start(t, { ...wanted, environment });
  await bench.sh(
    'mkdir broken; echo "import os; os.write(2, b\'broken on purpose\'); os._exit(7)" > broken/sitecustomize.py',
  );
  const outcome = await bench.call(ipython, { code: '1' });
  assert.deepEqual(outcome, {
    status: 'restarted',
    exitCode: null,
    text: 'broken on purpose\n[the kernel could not be started: exit status 7]',
  });
  await bench.sh('rm -r broken');
  assert.equal((await bench.call(ipython, { code: '1' })).text, '1');
});

test('memory has its limit, and a session goes on after it', async (t) => {
  const bench = await Bench.start(t, {
    ...wanted,
    limits: SandboxLimits.parse({ memoryBytes: 512 * 1024 ** 2 }),
  });
  const { text } = await bench.call(ipython, { code: 'l = []\nwhile True: l.append(bytearray(10**7))' });
  assert.match(text, /MemoryError|the kernel died .*\n.*\n\[memory limit reached\]$/);
  assert.equal((await bench.call(ipython, { code: 'l = None; 1' })).exitCode, 0);
});

test('folders with long names are no obstacle to its sockets', async (t) => {
  const environment = {
    ...wanted.environment,
    HOME: `/workspace/${'long/'.repeat(40)}`,
    TMPDIR: '/workspace',
  };
  const bench = await Bench.start(t, { ...wanted, environment });
  await bench.sh('mkdir -p "$HOME"');
  assert.equal((await bench.call(ipython, { code: '1' })).text, '1');
});

test("a sandbox without the kernel is the handler's mistake", async (t) => {
  const bench = await Bench.start(t);
  await assert.rejects(
    bench.call(ipython, { code: '1' }),
    failure('HandlerFailed', /ipython: in the sandbox, .*python3 has no module/),
  );
  const missing = await Bench.start(t, { environment: { ROLLOUTS_PYTHON: '/nowhere/python' } });
  await assert.rejects(
    missing.call(ipython, { code: '1' }),
    failure('HandlerFailed', /there is no \/nowhere\/python/),
  );
});

test('works in plain processes too, and leaves nothing', async (t) => {
  const bench = await Bench.start(t, wanted, 'process');
  assert.equal(
    (await bench.call(ipython, { code: 'import os; os.getcwd()' })).text,
    `'${bench.sandbox.workspace}'`,
  );
  const { pid } = JSON.parse(
    (await bench.call(ipython, { code: '__import__("json").dumps({"pid": os.getpid()})' })).text.slice(1, -1),
  );
  const temporary = `/tmp/${bench.box.info.sandboxId}`;
  assert.match(readdirSync(temporary).join(), /^\.kernel-\w+$/);
  await bench.box.release();
  await until(() => !isRunning(pid), 'the kernel has ended');
  assert.equal(existsSync(temporary), false);
});

/** Ended and waited for by nobody yet counts as ended. */
function isRunning(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}
