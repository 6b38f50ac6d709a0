import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { embedded } from '../llm/embedded.ts';
import { scaleGguf } from '../support/gguf.ts';
import { TestStack } from '../support/stack.ts';

const TASKS = path.join(PROJECT_ROOT, 'examples', 'tasks', 'arithmetic.jsonl');
/** Nats by which the mean differs where the same quantised weights score again: see rollouts.test.ts. */
const MEAN = 0.1;
/** Of the logits: what it samples is nearly random, and does not end by itself. */
const OTHER_SCALE = 0.25;
const SHORT = '[rollout.sampling]\nmaxTokensPerTurn = 12\n';

test('a second server with other weights takes over; the one before it leaves the pool', async (t) => {
  const stack = await TestStack.create();
  t.after(() => stack.dispose());
  const out = path.join(stack.folder, 'out.jsonl');
  stack.up('--no-sample');
  await stack.says(/The stack is up/);
  const model = path.join(stack.folder, 'other.gguf');
  await scaleGguf(loadTools().model, model, OTHER_SCALE);
  const { server, close } = await embedded({ contextTokens: 4096, parallel: 1, model });
  t.after(close);
  const pool = async (...args: string[]) => {
    const { stdout, stderr, code } = await stack.run('pool', ...args, '--json');
    return { code, stderr, state: stdout === '' ? undefined : JSON.parse(stdout) };
  };
  const listed = await pool('list');
  const before = stack.endpoints().llmServers.map(({ url }) => url);
  assert.deepEqual(
    listed.state.members.map((member: { server: { url: string } }) => member.server.url),
    before,
    'the stack has added its own',
  );
  const unlike = ['--context-tokens', '4096', '--tokenizer', '/nowhere'];
  const refused = await pool('add', `vllm=${server.url}`, ...unlike);
  assert.equal(refused.code, 2);
  assert.match(refused.stderr, /tokenizer folder: ENOENT/);
  const swapped = await pool('swap', `llama.cpp=${server.url}/`, '--mode', 'blueGreen', '--version', '1');
  assert.equal(swapped.code, 0, swapped.stderr);
  const config = path.join(stack.folder, 'short.toml');
  await writeFile(config, SHORT);
  const task = ['--tasks', TASKS, '--handler', 'math', '--limit', '1'];
  const one = await stack.run('run', ...task, '--out', out, '--config', config);
  assert.equal(one.code, 0, one.stderr);
  const { turns, policy_versions: versions } = Trajectory.parse(JSON.parse(readFileSync(out, 'utf8')));
  assert.deepEqual([...new Set(turns.map((turn) => turn.server))], [server.url]);
  assert.deepEqual([...new Set(versions.filter((version) => version !== -1))], [1]);
  // Which weights have sampled shows in the log-probabilities: the new ones give them again, the old ones others.
  const scoredBy = async (url: string | undefined) => {
    const flags = ['--server', `llama.cpp=${url}`, '--tokens', '6', '--json'];
    const { stdout, stderr } = await stack.run('verify', out, ...flags);
    assert.notEqual(stdout, '', stderr);
    const { problems, rescored } = JSON.parse(stdout);
    assert.deepEqual(problems, []);
    return rescored.mean as number;
  };
  const [itself, others] = [await scoredBy(server.url), await scoredBy(before[0])];
  assert.ok(itself <= MEAN && others > 3 * MEAN, `${itself} by the new weights, ${others} by the old ones`);
  const back = await pool('swap', `llama.cpp=${before[0]}`, '--mode', 'blueGreen', '--version', '2');
  assert.deepEqual([back.code, back.state.state.members.length], [0, 1]);
});
