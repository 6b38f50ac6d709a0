import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Box } from './support.ts';

/** Python that does what `expression` says with the C library as `c`, and prints what comes of it. */
const withLibc = (expression: string): string[] => [
  ...['/usr/bin/python3', '-c'],
  `import ctypes; c = ctypes.CDLL(None, use_errno=True); print(${expression})`,
];

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
}
