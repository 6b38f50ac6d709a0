import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { Box, startHost } from './support.ts';

/** A piece of a script, and what it does to status and output. */
interface Piece {
  readonly script: string;
  readonly output?: string;
  /** Status after it; absent: 0. */
  readonly status?: number;
  /** True: the shell has ended and what follows in the script is not run. */
  readonly ends?: boolean;
}

const word = fc.stringMatching(/^[a-z!$`"\\ *~#&;|<>(){}é€]{0,12}$/);
const piece: fc.Arbitrary<Piece> = fc.oneof(
  word.map((text) => ({ script: `printf '%s\\n' '${text}'`, output: `${text}\n` })),
  word.map((text) => ({ script: `cat <<'END'\n${text}\n  ${text}\nEND`, output: `${text}\n  ${text}\n` })),
  fc.nat(255).map((status) => ({ script: `(exit ${status})`, status })),
  fc.constantFrom<Piece>(
    { script: 'true' },
    { script: 'false', status: 1 },
    { script: 'ls /nonexistent 2>/dev/null', status: 2 },
    { script: 'sleep 0.01 &' },
    { script: 'read line', status: 1 },
    { script: 'cat' },
    { script: 'set -u' },
    { script: 'set +u' },
    { script: 'cd /tmp' },
    { script: 'mkdir -p a/b && cd a/b' },
    { script: 'f() { echo f; }; f', output: 'f\n' },
    { script: 'trap : INT TERM' },
    { script: 'trap : ERR RETURN' },
    { script: 'trap ": $BASH_COMMAND" DEBUG' },
    { script: 'trap - DEBUG' },
    { script: 'set -TE' },
    { script: 'shopt -s extdebug' },
    { script: 'set -o posix' },
    { script: 'set +o posix' },
    { script: 'set -fC' },
    { script: 'unset PWD PROMPT_COMMAND' },
    { script: 'printf() { builtin printf "$@"; }' },
    { script: 'unset -f printf' },
    { script: 'read line </dev/tty', status: 1 },
    { script: 'IFS=,' },
    { script: 'PS1="$ "; PROMPT_COMMAND=' },
    { script: 'exec 5>&1' },
    { script: 'stty sane </dev/tty' },
    { script: '[ a = b ]', status: 1 },
    { script: 'exit 7', status: 7, ends: true },
    { script: 'kill -9 $$', status: 137, ends: true },
    { script: 'exec false', status: 1, ends: true },
    { script: 'set -e; false', status: 1, ends: true },
  ),
);

test('property: scripts of any pieces give their output and the status of the last', async (t) => {
  const { client } = await startHost(t);
  const box = await Box.create(client);
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { minLength: 1, maxLength: 6 }), async (pieces) => {
      const end = pieces.findIndex(({ ends }) => ends);
      const run = end < 0 ? pieces : pieces.slice(0, end + 1);
      const result = await box.bash(pieces.map(({ script }) => script).join('\n'));
      assert.deepEqual(
        [result.output.text, result.exitCode, result.restarted, result.timedOut],
        [run.map(({ output }) => output ?? '').join(''), run.at(-1)?.status ?? 0, end >= 0, false],
      );
    }),
    {
      numRuns: 40,
      interruptAfterTimeLimit: 60_000,
      markInterruptAsFailure: false,
      includeErrorInReport: true,
    },
  );
  await box.release();
});

test('property: any bytes come out of a shell and of a program as they went in', async (t) => {
  const { client } = await startHost(t);
  const box = await Box.create(client);
  const { sandboxId, fence } = box.info;
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.string({ unit: 'binary', maxLength: 100 }).map((text) => new Uint8Array(Buffer.from(text))),
  );
  await fc.assert(
    fc.asyncProperty(bytes, fc.integer({ min: 1, max: 7 }), async (content, slice) => {
      const base64 = Buffer.from(content).toString('base64');
      const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(content);
      const { stdout } = await client.exec(sandboxId, {
        fence,
        argv: ['cat'],
        stdin: base64,
        timeoutMs: 9000,
      });
      assert.equal(stdout.text, text);
      await client.writeFile(sandboxId, { fence, path: '/workspace/bytes', content: base64 });
      // In slices that go through characters and through invalid sequences.
      const writer = `import os; b = open("bytes", "rb").read()\nfor i in range(0, len(b), ${slice}): os.write(1, b[i:i+${slice}])`;
      for (const command of ['cat bytes', `python3 -c '${writer}'`]) {
        assert.equal((await box.bash(command)).output.text, text.replaceAll('\r\n', '\n'), command);
      }
    }),
    {
      numRuns: 25,
      interruptAfterTimeLimit: 60_000,
      markInterruptAsFailure: false,
      includeErrorInReport: true,
    },
  );
  await box.release();
});

test('property: a command stopped at any time has printed a beginning, and its shell goes on', async (t) => {
  const { client } = await startHost(t);
  const box = await Box.create(client);
  const { sandboxId, fence } = box.info;
  const whole = Array.from({ length: 3000 }, (_, index) => `${index + 1}\n`).join('');
  const tail = fc.constantFrom('sleep 60', 'while :; do :; done', '(sleep 60 | sleep 60)');
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 120 }), fc.boolean(), tail, async (ms, byTimeout, rest) => {
      const running = box.bash(`seq 3000; ${rest}`, byTimeout ? ms : 30_000, 1 << 20);
      if (!byTimeout) {
        await new Promise((resolve) => setTimeout(resolve, ms));
        // What is typed too early has nothing to stop.
        let ended = false;
        running.finally(() => {
          ended = true;
        });
        while (!ended) {
          await client.interruptShell(sandboxId, 'main', fence);
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }
      const result = await running;
      assert.equal(result.timedOut, byTimeout);
      const printed = result.output.text.replaceAll('^C', '').trimEnd();
      assert.ok(whole.startsWith(printed), JSON.stringify(printed.slice(-200)));
      assert.equal((await box.bash('echo "usable"')).output.text, 'usable\n');
    }),
    {
      numRuns: 15,
      interruptAfterTimeLimit: 60_000,
      markInterruptAsFailure: false,
      includeErrorInReport: true,
    },
  );
  await box.release();
});
