import assert from 'node:assert/strict';
import test from 'node:test';
import { bash } from '../../activities/tools/bash.ts';
import { SandboxLimits } from '../../contracts/sandbox.ts';
import { Bench } from './support.ts';

test('bash: the model is shown both ends of long output and where all of it is', async (t) => {
  const bench = await Bench.start(t);
  const { text } = await bench.call(bash, { command: 'seq 50000; false' });
  const [, bytes, file] = /\n\[all ([0-9]+) bytes are in (\S+)\]\n\[exit status 1\]$/.exec(text) ?? [];
  assert.equal(bytes, '288894');
  assert.match(text, /^1\n2\n/);
  assert.match(text, /\n50000\n\[all/);
  const found = await bench.call(bash, { command: `grep -n '^2500.$' ${file} | head -2` });
  assert.equal(found.text, '25000:25000\n25001:25001');
  assert.equal((await bench.call(bash, { command: 'echo short' })).text, 'short');
});

test('bash: a file that had no room for all of it is said to be cut', async (t) => {
  const bench = await Bench.start(t, { limits: SandboxLimits.parse({ outputBytes: 100_000 }) });
  const { text } = await bench.call(bash, { command: 'seq 1000000' });
  assert.match(text, /\n\[the first 100000 of [0-9]{6,} bytes are in \S+\]\n\[output limit reached\]/);
});
