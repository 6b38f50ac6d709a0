import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';
import { PROJECT_ROOT } from '../../config/tools.ts';

const rollouts = (...args: string[]) =>
  spawnSync(process.execPath, [path.join(PROJECT_ROOT, 'bin', 'rollouts.mjs'), ...args], {
    encoding: 'utf8',
  });

test('LLM servers are named by kind and address, and share a tokenizer', () => {
  const flags = ['--server', 'vllm=http://gpu-3:8000', 'http://gpu-4:8080/x=y', '--tokenizer', 'models/a'];
  const { stdout, stderr } = rollouts('config', '--json', ...flags);
  const entries = JSON.parse(stdout || stderr) as { name: string; value: unknown; origin: string }[];
  const servers = entries.find(({ name }) => name === 'llm.servers');
  const tokenizer = path.resolve('models/a');
  assert.equal(servers?.origin, 'flag');
  assert.deepEqual(servers?.value, [
    { url: 'http://gpu-3:8000', dialect: 'vllm', policyVersion: 0, tokenizer },
    { url: 'http://gpu-4:8080/x=y', dialect: 'llama.cpp', policyVersion: 0, tokenizer },
  ]);
});

test('a kind of server that there is not is refused with those that there are', () => {
  const { status, stderr } = rollouts('config', '--server', 'ollama=http://gpu-3:8000');
  assert.equal(status, 2);
  assert.match(stderr, /llm\.servers\.0\.dialect \(flag\).*"sglang"/);
});
