import assert from 'node:assert/strict';
import test from 'node:test';
import fc from 'fast-check';
import { ipython } from '../../activities/tools/ipython.ts';
import { loadTools } from '../../config/tools.ts';
import { SandboxLimits } from '../../contracts/sandbox.ts';
import { Bench } from './support.ts';

/** Prints numbers, each noted in a file when it has been flushed, until `end`, which may end the kernel. */
const counting = (end: string) => `
import os, sys, threading, ctypes
noted = open("noted", "w")
def count(until):
    i = 0
    while until is None or i < until:
        print(i, flush=True)
        print(i, file=noted, flush=True)
        i += 1
${end}`;

interface Death {
  readonly code: string;
  /** How the tool says that the kernel ended. */
  readonly how: RegExp;
}

const lines = fc.nat(400);
const death: fc.Arbitrary<Death> = fc.oneof(
  lines.map((n) => ({
    code: `count(${n}); os.kill(os.getpid(), 9)`,
    how: /the kernel died \(killed by signal 9/,
  })),
  lines.map((n) => ({ code: `count(${n}); os._exit(3)`, how: /the kernel died \(exit status 3\)/ })),
  lines.map((n) => ({ code: `count(${n}); os.abort()`, how: /the kernel died \(killed by signal 6\)/ })),
  lines.map((n) => ({
    code: `count(${n}); ctypes.string_at(0)`,
    how: /the kernel died \(killed by signal 11\)/,
  })),
  fc.integer({ min: 1, max: 80 }).map((ms) => ({
    code: `threading.Timer(${ms / 1000}, lambda: os.kill(os.getpid(), 9)).start(); count(None)`,
    how: /the kernel died \(killed by signal 9\)/,
  })),
  lines.map((n) => ({
    code: `count(${n}); x = []\nwhile True: x.append(b"x" * 10**7)`,
    how: /the kernel died \(killed by signal 9\)|MemoryError/,
  })),
);

test('property: whenever and however a kernel dies, nothing flushed is lost and a new one is said', async (t) => {
  const limits = SandboxLimits.parse({ memoryBytes: 256 * 1024 ** 2 });
  const bench = await Bench.start(t, { ...ipython.sandbox?.(loadTools()), limits });
  await fc.assert(
    fc.asyncProperty(death, async ({ code, how }) => {
      const outcome = await bench.call(ipython, { code: counting(code) });
      assert.match(outcome.text, how);
      const printed = outcome.text.split('\n').filter((line) => /^\d+$/.test(line));
      const left = / (\d+) characters left out/.exec(outcome.text);
      if (!left)
        assert.deepEqual(
          printed,
          printed.map((_, index) => String(index)),
        );
      const noted = (await bench.sh('cat noted')).trimEnd().split('\n').filter(Boolean);
      assert.ok(Number(printed.at(-1) ?? -1) >= noted.length - 1, `${printed.at(-1)} of ${noted.length}`);
      if (!/MemoryError/.test(outcome.text)) assert.equal(outcome.status, 'restarted');
      assert.equal((await bench.call(ipython, { code: 'x = 1 + 1; x' })).text, '2');
    }),
    {
      numRuns: 15,
      interruptAfterTimeLimit: 120_000,
      markInterruptAsFailure: false,
      includeErrorInReport: true,
    },
  );
});
