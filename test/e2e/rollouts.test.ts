import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, test } from 'node:test';
import type { FastifyBaseLogger } from 'fastify';
import { pino } from 'pino';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { LlamaCppDialect } from '../../activities/llm/llama-cpp.ts';
import { checksumOf } from '../../activities/trajectory/assemble.ts';
import { readTrajectory, TrajectoryStore } from '../../activities/trajectory/store.ts';
import { PolicyServer } from '../../chaos/policy-server.ts';
import { decode } from '../../chaos/tokens.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import type { TopState } from '../../client/top/state.ts';
import { loadConfig } from '../../config/load.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import type { RolloutRequestInput } from '../../contracts/request.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { makeApp } from '../../gateway/app.ts';
import { METRICS, type MetricName } from '../../workers/metrics/table.ts';
import { hasBrowser, startBrowser } from '../support/browser.ts';
import { scrape } from '../support/scrape.ts';
import { TestStack } from '../support/stack.ts';
import { until } from '../support/until.ts';
import { type Kind, kinds, playing, SIDES, type Side, taskOf } from './kinds.ts';

const TASKS = path.join(PROJECT_ROOT, 'examples', 'tasks', 'arithmetic.jsonl');
/** Of one call: from when it is made, since what comes before may take its time. */
const soon = () => AbortSignal.timeout(300_000);

let stack: TestStack;
let out: string;
let trajectories: Trajectory[];
before(async () => {
  stack = await TestStack.create();
  out = path.join(stack.folder, 'out.jsonl');
  stack.up('--no-sample', '--handlers', path.join(import.meta.dirname, 'program-handler.ts'));
  await stack.says(/The stack is up/);
});
after(() => stack?.dispose());

test('a file of tasks becomes a file of trajectories that keep the contract', async () => {
  const run = await stack.run(
    'run',
    '--tasks',
    TASKS,
    '--handler',
    'math',
    '--limit',
    '4',
    '--samples',
    '2',
    '--out',
    out,
    '--json',
  );
  assert.equal(run.code, 0, run.stderr);
  const summary = JSON.parse(run.stdout);
  assert.equal(summary.rollouts, 8);
  assert.equal(summary.outcomes.failed + summary.outcomes.cancelled, 0);
  trajectories = readFileSync(out, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => Trajectory.parse(JSON.parse(line)));
  assert.equal(trajectories.length, 8);
  assert.equal(new Set(trajectories.map((trajectory) => trajectory.rollout_id)).size, 8);
  for (const trajectory of trajectories) {
    assert.equal(checksumOf(trajectory), trajectory.checksum);
    assert.ok(trajectory.reward, 'every one is graded');
    assert.ok(trajectory.loss_mask.includes(1));
  }
  assert.ok(
    trajectories.some((trajectory) => trajectory.turns.some((turn) => turn.tool_calls.length > 0)),
    'the model called its tool',
  );
});

test('the metrics say what has run, and of no rollout by its name', async () => {
  const { sum, samples, types } = await scrape(stack.endpoints().metrics);
  assert.equal(sum('rollouts_ended_total'), 8);
  for (const outcome of ['completed', 'truncated']) {
    const those = trajectories.filter(({ truncated }) => (truncated === null) === (outcome === 'completed'));
    assert.equal(sum('rollouts_ended_total', { kind: 'math', outcome }), those.length, outcome);
  }
  const total = (of: (trajectory: Trajectory) => number) =>
    trajectories.reduce((before, trajectory) => before + of(trajectory), 0);
  const sampled = total(({ loss_mask }) => loss_mask.filter((mask) => mask === 1).length);
  const outputs = total(({ output_ids }) => output_ids.length);
  const calls = trajectories.flatMap(({ turns }) => turns.flatMap(({ tool_calls }) => tool_calls));
  for (const [name, labels, value] of [
    ['rollouts_tokens_total', { kind: 'math', source: 'sampled' }, sampled],
    ['rollouts_tokens_total', { source: 'observed' }, outputs - sampled],
    ['rollouts_tokens_total', { source: 'prompt' }, total(({ input_ids }) => input_ids.length)],
    ['rollouts_llm_sampled_tokens_total', {}, sampled],
    ['rollouts_sampled_tokens_sum', { kind: 'math' }, sampled],
    ['rollouts_turns_total', { kind: 'math' }, total(({ turns }) => turns.length)],
    ['rollouts_reward_sum', { kind: 'math' }, total(({ reward }) => reward?.total ?? 0)],
    ['rollouts_tool_calls_total', {}, calls.length],
    ['rollouts_tool_calls_total', { exit: 'zero' }, calls.filter(({ exit_code }) => exit_code === 0).length],
    ['rollouts_activity_seconds_count', { activity: 'init', end: 'ok' }, 8],
    ['rollouts_activity_seconds_count', { activity: 'evaluate', end: 'ok' }, 8],
    ['rollouts_runs_total', {}, 8],
    ['rollouts_part_seconds_count', { part: 'total' }, 8],
    ['rollouts_host_call_seconds_count', { call: 'POST /v1/sandboxes', code: '200' }, 8],
    ['rollouts_sandboxes', {}, 0],
    ['rollouts_agents_most', {}, 16],
    ['rollouts_sandbox_leaks_total', {}, 0],
    ['rollouts_pool_lease', {}, 1],
    ['rollouts_llm_servers', { state: 'active' }, 1],
    ['rollouts_queue_unknown', {}, 0],
    ['rollouts_queue_backlog_tasks', {}, 0],
  ] as const) {
    assert.equal(sum(name, labels), value, `${name} ${JSON.stringify(labels)}`);
  }
  assert.ok(Math.abs(sum('rollouts_part_seconds_sum', { part: 'run' })) > 0);
  // One that a loaded machine kept silent for too long is made again, and ended otherwise.
  const [stopped = 0, cut = 0] = ['stop', 'length'].map((finish) =>
    sum('rollouts_llm_requests_total', { finish }),
  );
  assert.equal(
    stopped + cut,
    total(({ turns }) => turns.length),
  );
  // Their own, and those of the SDK and the process beside them, each declared where it belongs.
  const gateway = (name: string) => METRICS[name as MetricName].component === 'gateway';
  for (const name of Object.keys(METRICS)) assert.equal(types.has(name), !gateway(name), name);
  for (const name of [
    'temporal_request_latency_seconds',
    'temporal_worker_task_slots_used',
    'temporal_workflow_task_schedule_to_start_latency_seconds',
    'process_cpu_seconds_total',
    'process_start_time_seconds',
    'nodejs_eventloop_lag_p99_seconds',
  ])
    assert.ok(types.has(name), name);
  const values = samples.flatMap(({ labels }) => Object.values(labels));
  for (const { rollout_id, batch_id, workflow_run_id } of trajectories) {
    for (const id of [rollout_id, batch_id as string, workflow_run_id])
      assert.ok(!values.some((value) => value.includes(id)), id);
  }
});

test('the logs say what became of each rollout', async () => {
  const folder = path.join(stack.folder, 'logs');
  const lines = readdirSync(folder).flatMap((name) =>
    readFileSync(path.join(folder, name), 'utf8')
      .split('\n')
      .filter((line) => line.includes('"rollout"'))
      .map((line) => JSON.parse(line)),
  );
  for (const { rollout_id, reward } of trajectories) {
    const graded = lines.filter(
      ({ rollout, stage, msg }) => rollout === rollout_id && stage === 'evaluate' && msg,
    );
    assert.deepEqual(
      graded.map(({ msg, reward, attempt }) => [msg, reward, attempt]),
      [['it is graded', reward?.total, 1]],
      rollout_id,
    );
  }
});

test('the tokens decode to the conversation', async () => {
  const llm = new LlamaCppDialect(stack.endpoints().llmServers[0]?.url as string);
  for (const trajectory of trajectories) {
    const text = await llm.detokenize([...trajectory.input_ids, ...trajectory.output_ids], soon());
    const expected = trajectory.messages
      .map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`)
      .join('');
    // The last turn's own end-of-turn token is sampled, the newline after it would belong to a next message.
    const whole =
      trajectory.turns.at(-1)?.finish === 'stop'
        ? expected.slice(0, -1)
        : expected.slice(0, -'<|im_end|>\n'.length);
    const closed = trajectory.truncated === 'turns' ? `${expected}<|im_start|>assistant\n` : whole;
    assert.equal(text, closed, trajectory.rollout_id);
  }
  await llm.close();
});

/**
 * Tolerances of recorded against re-scored log-probabilities, in nats. The model is quantised to 4 bits, and
 * the server computes a token that it generates beside others and a token that it reads by different kernels:
 * single tokens differ in the second digit, the mean hardly. A wrong token or a shifted sequence is off by
 * several nats.
 */
const MOST = 0.5;
const MEAN = 0.1;

test('the file is proven: checksums, alignment, ledgers, and the log-probabilities by the model itself', async () => {
  const flags = ['--rescore', '--tokens', '2', '--tolerance', String(MOST), '--json'];
  const { code, stdout, stderr } = await stack.run('verify', out, ...flags);
  assert.equal(code, 0, stdout + stderr);
  const { problems, sequences, ledgers, rescored } = JSON.parse(stdout);
  assert.deepEqual(problems, []);
  assert.equal(sequences, 8);
  assert.equal(ledgers, 8);
  assert.ok(rescored.tokens >= 10, `${rescored.tokens} tokens compared`);
  assert.ok(rescored.largest <= MOST && rescored.mean <= MEAN, JSON.stringify(rescored));
});

test('show and list know the rollouts', async () => {
  const id = trajectories[0]?.rollout_id as string;
  const shown = JSON.parse((await stack.run('show', id, '--json')).stdout);
  assert.equal(shown.record.rolloutId, id);
  assert.deepEqual(shown.trajectory[0], trajectories[0]);
  const batch = trajectories[0]?.batch_id as string;
  let listed: { rolloutId: string }[] = [];
  while (listed.length < 8) {
    // Visibility is eventually consistent.
    listed = JSON.parse((await stack.run('list', '--batch', batch, '--json')).stdout);
  }
  assert.deepEqual(
    listed.map(({ rolloutId }) => rolloutId).sort(),
    trajectories.map((trajectory) => trajectory.rollout_id).sort(),
  );
});

test('the Temporal UI shows three stages on three queues, summaries and search attributes', {
  skip: !hasBrowser && !process.env.CI && 'no Chromium on this machine',
}, async () => {
  const shown = trajectories.find((trajectory) => trajectory.turns.length > 1) ?? trajectories[0];
  const { rollout_id: id, workflow_run_id: run } = shown as Trajectory;
  const browser = await startBrowser();
  try {
    const page = await browser.newPage({ viewport: { width: 1500, height: 1250 } });
    const workflow = `${stack.endpoints().uiUrl}/namespaces/default/workflows/${id}/${run}`;
    page.setDefaultTimeout(60_000);
    await page.goto(`${workflow}/history`);
    const { sample, task } = shown as Trajectory;
    for (const text of [`init • math ${task.id} · sample ${sample}`, 'run • on ', 'evaluate • ']) {
      await page.getByText(text).first().waitFor();
    }
    if (process.env.SCREENSHOTS) {
      await page.screenshot({ path: path.join(process.env.SCREENSHOTS, 'temporal-ui.png') });
    }
    await page.goto(`${workflow}/user-metadata`);
    const details = page.frameLocator('iframe[src*="rollout%20page"]');
    const link = details.getByRole('link', { name: 'The rollout page' });
    assert.equal(await link.getAttribute('href'), `http://page.test:8700/#/rollouts/${id}`);
    await page.goto(`${workflow}/search-attributes`);
    for (const name of [
      'Outcome',
      'Reward',
      'Stage',
      'TaskKind',
      'TaskId',
      'BatchId',
      'Host',
      'PolicyVersion',
    ]) {
      await page.getByText(`"${name}"`).first().waitFor();
    }
  } finally {
    await browser.close();
  }
});

test('the rollout page shows a real one: its tokens by the server that has their tokenizer, and where it is in Temporal', {
  skip: !hasBrowser && !process.env.CI && 'no Chromium on this machine',
}, async (t) => {
  const config = loadConfig({ env: {}, flags: { state: { folder: stack.folder } } });
  const client = await RolloutClient.connect(config);
  t.after(() => client.close());
  const store = new TrajectoryStore(config.derived.storeFolder);
  const [handlers, log] = [new HandlerRegistry(), pino({ level: 'silent' }) as FastifyBaseLogger];
  const app = await makeApp({ config, client, store, handlers, log, tokens: undefined });
  t.after(() => app.close());
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  const browser = await startBrowser();
  t.after(() => browser.close());
  const page = await browser.newPage({ viewport: { width: 1300, height: 1000 } });
  page.setDefaultTimeout(60_000);
  const shown = trajectories.find(({ turns }) => turns.length > 1) as Trajectory;
  await page.goto(`${address}/#/rollouts/${shown.rollout_id}?shade=logprob`);
  await page.getByRole('article', { name: 'Turn 0' }).getByText('<|im_start|>').first().waitFor();
  if (process.env.SCREENSHOTS) {
    await page.screenshot({ path: path.join(process.env.SCREENSHOTS, 'page.png') });
  }
  await page.getByText('Prompt', { exact: true }).click();
  const prompt = page.getByRole('group', { name: /^Prompt, / });
  const llm = new LlamaCppDialect(stack.endpoints().llmServers[0]?.url as string);
  t.after(() => llm.close());
  const expected = await llm.detokenize(shown.input_ids, soon());
  await until(
    async () => (await prompt.textContent())?.replaceAll(/[·↵]/g, '') === expected,
    'the prompt as its tokenizer decodes it',
  );
  const link = page.getByRole('link', { name: 'Temporal UI ↗' }).last();
  const workflow = `workflows/${encodeURIComponent(shown.rollout_id)}/${shown.workflow_run_id}/history`;
  assert.equal(await link.getAttribute('href'), `${stack.endpoints().uiUrl}/namespaces/default/${workflow}`);
});

test('top tells queues, hosts, the pool and what has ended', async () => {
  let state: TopState | undefined;
  const ended = () => {
    const { rollouts } = state as TopState;
    assert.ok('value' in rollouts, JSON.stringify(rollouts));
    const { completed, truncated } = rollouts.value.ended;
    return completed + truncated;
  };
  const held = () => {
    const { hosts } = state as TopState;
    return 'value' in hosts ? hosts.value[0]?.stats?.sandboxes : undefined;
  };
  do {
    // Visibility is eventually consistent, and hosts tell of themselves every ten seconds.
    const { stdout, stderr } = await stack.run('top', '--json');
    assert.notEqual(stdout, '', stderr);
    state = JSON.parse(stdout) as TopState;
  } while (ended() < 8 || held() !== 0);
  const { queues, hosts, pool, batches } = state;
  assert.ok(
    'value' in queues && 'value' in hosts && 'value' in pool && 'value' in batches,
    JSON.stringify(state),
  );
  const [host] = hosts.value;
  assert.equal(host?.stats?.backend, 'bubblewrap');
  assert.equal(host?.stats?.sandboxes, 0);
  for (const name of [
    'workflows',
    'init',
    `run-${host?.host}`,
    'eval',
    'records',
    'pool',
    `control-${host?.host}`,
  ]) {
    const queue = queues.value.find(({ queue }) => queue === `rollouts-${name}`);
    assert.ok(queue && queue.workers > 0, `${name}: ${JSON.stringify(queue)}`);
  }
  assert.deepEqual(
    pool.value.servers.map(({ url, version, load }) => [url, version, load]),
    stack.endpoints().llmServers.map(({ url }) => [url, 0, { value: { running: 0, waiting: 0 } }]),
  );
  assert.deepEqual(batches.value, []);
});

test('malformed lines are named, counted and cost the exit code, and nothing else', async () => {
  const tasks = path.join(stack.folder, 'mixed.jsonl');
  await writeFile(tasks, '{"question":"What is 2+3?","answer":"5"}\n{"question":"no answer"}\n');
  const run = await stack.run('run', '--tasks', tasks, '--handler', 'math', '--json');
  assert.equal(run.code, 1);
  assert.match(run.stderr, /mixed\.jsonl:2: .*answer: expected an answer or a solution/);
  const summary = JSON.parse(run.stdout);
  assert.equal(summary.badLines, 1);
  assert.equal(summary.rollouts, 1);
});

test('an agent solves a task of each kind with its tools, and finds nothing of its grader; wrong answers are worth 0', async (t) => {
  const folder = await mkdtemp(path.join(stack.folder, 'swe-'));
  const all = await kinds(folder);
  const server = await PolicyServer.start(playing(all));
  const { temporalAddress: address } = stack.endpoints();
  const config = loadConfig({ env: {}, flags: { temporal: { address }, state: { folder: stack.folder } } });
  const client = await RolloutClient.connect(config);
  t.after(async () => {
    await client.pool.remove(server.url);
    await client.close();
    await server.close();
  });
  await client.pool.add({ server: { url: server.url }, labels: ['played', 'judge'] });
  const store = new TrajectoryStore(config.derived.storeFolder);
  const roll = async (kind: Kind, side: Side, more: Partial<RolloutRequestInput> = {}) => {
    const task = taskOf(kind, side);
    const rolloutId = `kinds-${task.id}-${more.serverLabel ?? 'played'}`;
    const result = await client.execute({
      ...{ rolloutId, task, serverLabel: 'played', sampling: { maxTokensPerTurn: 2000 } },
      attempts: { stage: 1 },
      formatPenalty: 0.5,
      ...more,
    });
    assert.deepEqual(await store.getTerminal(rolloutId), result);
    const [trajectory] = result.trajectory ? await readTrajectory(result.trajectory) : [];
    return { result, trajectory, kind, side };
  };
  const played = all.flatMap((kind) => SIDES.filter((side) => kind[side]).map((side) => roll(kind, side)));
  // The same tasks, and a model that cannot solve them.
  const real = all.map((kind) =>
    roll(kind, 'right', {
      serverLabel: 'policy',
      limits: { maxTurns: 2 },
      sampling: { maxTokensPerTurn: 40, seed: 3 },
    }),
  );
  for (const { result, trajectory, kind, side } of await Promise.all(played)) {
    const what = `${kind.name}, ${side}: ${JSON.stringify([result.failure, result.reward, trajectory?.messages])}`;
    if (side === 'unclear') {
      assert.deepEqual([result.outcome, result.reward], ['failed', null], what);
      assert.match(result.failure?.message ?? '', /the judge gave no verdict: I would rather not say/);
      continue;
    }
    assert.deepEqual([result.outcome, result.reward?.total], ['completed', side === 'right' ? 1 : 0], what);
    assert.deepEqual(
      [result.reward?.parts.graded, result.reward?.parts.format],
      [result.reward?.total, 0],
      what,
    );
    assert.ok(trajectory);
    const sampled = trajectory.output_ids.filter((_, at) => trajectory.loss_mask[at] === 1);
    assert.equal(decode(sampled), kind[side]?.map((reply) => `${reply}<|im_end|>`).join(''), what);
    const shown = trajectory.messages.filter(({ role }) => role === 'system' || role === 'user');
    const { hidden } = kind;
    assert.ok(hidden === undefined || !shown.some(({ content }) => content.includes(hidden)), what);
    const heard = trajectory.messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
    if (side === 'wrong' || kind.commits === null) continue;
    const searched = heard.find((text) => text.includes('searched'));
    assert.equal(searched?.trim(), `${kind.commits}\nsearched`, what);
    if (kind.name === 'stem') {
      assert.match(heard.at(-2) ?? '', /^\[1\] Constants\nNothing[\s\S]*Zyx constant is 17\.25/);
      assert.equal(heard.at(-1), '[1] Others\nAbc: 25.5 m');
    }
  }
  for (const { result, kind } of await Promise.all(real)) {
    assert.notEqual(result.outcome, 'failed', `${kind.name}: ${JSON.stringify(result.failure)}`);
    assert.equal(result.reward?.total, 0, kind.name);
  }
});

test('unknown handlers and ids are clear errors', async () => {
  const run = await stack.run('run', '--tasks', TASKS, '--handler', 'maths');
  assert.equal(run.code, 2);
  assert.match(run.stderr, /no handler is called "maths"; known: math/);
  const show = await stack.run('show', 'nobody');
  assert.equal(show.code, 2);
  assert.match(show.stderr, /nobody/);
});

test('a second stack in the same folder is refused', async () => {
  const second = await stack.run('up', '--no-sample');
  assert.equal(second.code, 2);
  assert.match(second.stderr, /already runs \(process \d+\)/);
});

test('SIGTERM stops all that was started, in order', async () => {
  const pids = stack.pids();
  assert.ok(pids.length >= 5, `${pids}`);
  process.kill(pids[0] as number, 'SIGTERM');
  assert.equal(await stack.ended(), 0);
  // What lives by a pipe to one of them ends when that closes.
  while (pids.some((pid) => existsSync(`/proc/${pid}`)))
    await new Promise((resolve) => setTimeout(resolve, 20));
});
