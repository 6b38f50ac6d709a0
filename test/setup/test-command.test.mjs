import assert from 'node:assert/strict';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { run } from '../../scripts/setup/lib/command.mjs';
import { fakeProgram, temporaryFolder } from './support.mjs';

/** A small checkout with two test folders and checks that pass or fail. */
function checkout(t, { lint = 'exit 0' } = {}) {
  const root = temporaryFolder(t);
  cpSync(path.join(PROJECT_ROOT, 'scripts', 'test.mjs'), path.join(root, 'scripts', 'test.mjs'));
  fakeProgram(path.join(root, 'node_modules', '.bin'), 'tsc', 'exit 0');
  fakeProgram(path.join(root, 'node_modules', '.bin'), 'biome', lint);
  symlinkSync(path.join(PROJECT_ROOT, 'node_modules', 'tsx'), path.join(root, 'node_modules', 'tsx'));
  for (const area of ['one', 'two', 'fixtures']) {
    mkdirSync(path.join(root, 'test', area), { recursive: true });
    const body = `import test from 'node:test'; const name: string = '${area}'; test(name, () => {});\n`;
    writeFileSync(path.join(root, 'test', area, 'a.test.ts'), body);
  }
  return root;
}

function runTests(root, ...args) {
  // Node's runner does nothing when it finds itself inside another one.
  const { NODE_TEST_CONTEXT, ...env } = process.env;
  return run(process.execPath, [path.join(root, 'scripts', 'test.mjs'), ...args], { env });
}

test('checks come first, and the last lines are the summary of all tests', async (t) => {
  const { stdout } = await runTests(checkout(t));
  assert.match(stdout, /^✔ type check \(tsc --noEmit\)\n✔ lint \(biome ci --colors=off \.\)\n/);
  assert.match(stdout, /ℹ tests 2\n[\s\S]*ℹ pass 2\nℹ fail 0\n[^✔]*$/);
});

test('named folders run alone, without the checks', async (t) => {
  const { stdout } = await runTests(checkout(t, { lint: 'exit 1' }), 'two');
  assert.match(stdout, /^✔ two /);
  assert.match(stdout, /ℹ tests 1\n/);
});

test('files that say they are long run only when they are asked for', async (t) => {
  const root = checkout(t, { lint: 'exit 1' });
  const body = `import test from 'node:test'; test('minutes', () => {});\n`;
  writeFileSync(path.join(root, 'test', 'one', 'b.long.test.ts'), body);
  const long = await runTests(root, '--long');
  assert.match(long.stdout, /^✔ minutes /);
  assert.match(long.stdout, /ℹ tests 1\n/);
  assert.doesNotMatch((await runTests(root, 'one')).stdout, /minutes/);
});

test('a failed check is shown and named, the tests run all the same', async (t) => {
  const root = checkout(t, { lint: 'echo "x.ts:1:1 bad style"; exit 1' });
  await assert.rejects(runTests(root), (error) => {
    assert.match(error.output, /x\.ts:1:1 bad style\n✖ lint \(biome ci --colors=off \.\)/);
    assert.match(error.output, /ℹ pass 2/);
    assert.match(error.output, /not passed before the tests: lint/);
    return true;
  });
});

test('an unknown folder is refused with the names of those that exist', async (t) => {
  await assert.rejects(runTests(checkout(t), 'three'), /no folder test\/three; there are: one, two/);
});
