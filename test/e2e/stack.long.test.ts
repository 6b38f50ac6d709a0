import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { RolloutResult } from '../../contracts/result.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { embedded } from '../llm/embedded.ts';
import { scaleGguf } from '../support/gguf.ts';
import { TestStack } from '../support/stack.ts';

/** Of Temporal's enum PendingActivityState. */
const STARTED = 2;
const TASKS = path.join(PROJECT_ROOT, 'examples', 'tasks', 'arithmetic.jsonl');
/** Nats by which the mean differs where the same quantised weights score again: see rollouts.test.ts. */
const MEAN = 0.1;
/** Of the logits: what it samples is nearly random, and does not end by itself. */
const OTHER_SCALE = 0.25;
const SHORT = '[rollout.sampling]\nmaxTokensPerTurn = 12\n';

// One stack at a time: each takes the ports that it finds free.
let stack: TestStack;
before(async () => {
  stack = await TestStack.create();
});
after(() => stack?.dispose());

/** Terminal records of all rollouts, as they lie in the store. */
function terminalRecords(): RolloutResult[] {
  const store = path.join(stack.folder, 'store');
  if (!existsSync(store)) return [];
  return readdirSync(store, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('terminal.json'))
    .map((name) => RolloutResult.parse(JSON.parse(readFileSync(path.join(store, name), 'utf8'))));
}

test('a stack that is killed in the middle of a batch finishes that batch when it is started again', async () => {
  stack.up('--exit', '--samples', '1');
  await stack.says(/\[2\] /);
  const pids = stack.pids();
  await stack.killAll();
  const before = terminalRecords();
  assert.ok(before.length >= 2 && before.length < 12, `${before.length} of 12 had ended`);
  while (pids.some(isRunning)) await new Promise((resolve) => setTimeout(resolve, 20));

  stack.up('--exit', '--samples', '1');
  assert.equal(await stack.ended(), 0, stack.output);
  assert.match(stack.output, /going on with batch/);

  const records = terminalRecords();
  assert.equal(records.length, 12, 'none is lost');
  assert.equal(new Set(records.map((record) => record.rolloutId)).size, 12, 'none is there twice');
  for (const old of before) {
    const now = records.find((record) => record.rolloutId === old.rolloutId);
    assert.deepEqual(now, old, 'what had ended stands unchanged');
  }
  assert.deepEqual([...new Set(records.map((record) => record.failure))], [null], 'no failure');

  const out = path.join(stack.folder, 'out', `${records[0]?.batchId}.jsonl`);
  const lines = readFileSync(out, 'utf8').trimEnd().split('\n');
  const ids = lines.map((line) => Trajectory.parse(JSON.parse(line)).rollout_id);
  assert.deepEqual(ids.sort(), records.map((record) => record.rolloutId).sort());
});

test('a stack that was stopped and is started again has a host that sweeps find', async () => {
  // The host of the stack before has taken its leave, which no workflow worker was there to see.
  stack.up('--no-sample');
  await stack.says(/The stack is up/);
  const client = await RolloutClient.connect(
    loadConfig({ env: { ROLLOUTS_TEMPORAL_ADDRESS: stack.endpoints().temporalAddress } }),
  );
  const host = client.temporal.workflow.getHandle(`host:${hostname()}`);
  for (let present = false; !present; ) {
    const { status, raw } = await host.describe();
    assert.equal(status.name, 'RUNNING');
    present = raw.pendingActivities?.some(({ state }) => state === STARTED) ?? false;
  }
  assert.deepEqual(await client.hosts(), [hostname()]);
  await client.close();
});

test('a second server with other weights takes over; the one before it leaves the pool', async (t) => {
  // On the stack of the test before.
  const trajectories = path.join(stack.folder, 'out.jsonl');
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
  const one = await stack.run('run', ...task, '--out', trajectories, '--config', config);
  assert.equal(one.code, 0, one.stderr);
  const { turns, policy_versions: versions } = Trajectory.parse(
    JSON.parse(readFileSync(trajectories, 'utf8')),
  );
  assert.deepEqual([...new Set(turns.map((turn) => turn.server))], [server.url]);
  assert.deepEqual([...new Set(versions.filter((version) => version !== -1))], [1]);
  // Which weights have sampled shows in the log-probabilities: the new ones give them again, the old ones others.
  const scoredBy = async (url: string | undefined) => {
    const flags = ['--server', `llama.cpp=${url}`, '--tokens', '6', '--json'];
    const { stdout, stderr } = await stack.run('verify', trajectories, ...flags);
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

/** False for a process that is gone or only waits to be collected by its parent. */
function isRunning(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
