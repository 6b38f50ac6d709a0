import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { ApplicationFailure, CancelledFailure } from '@temporalio/activity';
import { MockActivityEnvironment } from '@temporalio/testing';
import { pino } from 'pino';
import { GroupStore } from '../../activities/groups/group-store.ts';
import type { SandboxClient } from '../../activities/sandbox/client.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { BatchResult } from '../../contracts/batch.ts';
import type { GroupResult } from '../../contracts/group.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import type { ToolResult } from '../../contracts/tools.ts';
import { countActivities } from '../../workers/metrics/activities.ts';
import { countAgents } from '../../workers/metrics/agents.ts';
import { MetricsListener } from '../../workers/metrics/listener.ts';
import { countRequests } from '../../workers/metrics/llm.ts';
import { Metrics } from '../../workers/metrics/metrics.ts';
import { countGroups, countOutcomes } from '../../workers/metrics/outcomes.ts';
import { METRICS } from '../../workers/metrics/table.ts';
import { withWork } from '../../workers/work-context.ts';
import { letterPolicy } from '../support/letters.ts';
import { parseScrape } from '../support/scrape.ts';
import { until } from '../support/until.ts';

const folder = await mkdtemp(path.join(tmpdir(), 'metrics-'));
after(() => rm(folder, { recursive: true }));

const read = async (metrics: Metrics) => parseScrape(await metrics.text());

const graded: RolloutResult = {
  ...{ schemaVersion: 1, rolloutId: 'r:0', workflowRunId: 'run', handler: 'math', taskId: 'r', sample: 0 },
  ...{ groupId: null, batchId: null, outcome: 'completed', reward: { total: 0.5, parts: {} } },
  ...{ truncation: null, cancel: null, failure: null, retried: [], attempt: 1, host: 'h', backend: 'none' },
  ...{ policyVersions: [3, 4], startedAt: '2026-01-01T00:00:00Z', endedAt: '2026-01-01T00:00:09Z' },
  trajectory: {
    ...{ uri: 'file:///t', sha256: '', bytes: 1, turns: 2, promptTokens: 7, outputTokens: 30 },
    sampledTokens: 20,
  },
  timings: { initMs: 1000, runMs: 5000, evaluateMs: 500, queueMs: 2500, totalMs: 9000 },
};

test('names and units are as Prometheus wants them', () => {
  for (const [name, { kind, ...spec }] of Object.entries(METRICS)) {
    assert.match(name, /^rollouts_[a-z_]+$/);
    assert.equal(name.endsWith('_total'), kind === 'counter', name);
    assert.equal('buckets' in spec, kind === 'histogram', name);
    assert.doesNotMatch(name, /_(ms|milliseconds|minutes|kb|mb)(_|$)/);
  }
});

test('a rollout counts once, when its record is made: outcome, reward, times, retries, staleness', async () => {
  const metrics = new Metrics(['outcomes']);
  const store = countOutcomes(new TrajectoryStore(folder), metrics, {
    kinds: new Set(['math']),
    version: () => 5,
  });
  await store.putTerminal(graded);
  await store.putTerminal({ ...graded });
  const lost = { stage: 'run', cause: 'infrastructure', message: '', attempt: 1 } as const;
  await store.putTerminal({
    ...{ ...graded, rolloutId: 'r:1', outcome: 'failed', reward: null, trajectory: null },
    failure: { ...lost, type: 'SandboxLost' },
    retried: [{ ...lost, type: 'LlmUnreachable' }],
    policyVersions: null,
  });
  const receipt = { reason: 'stale', stage: 'run', turn: 1, llmAborted: true, processesKilled: 1 } as const;
  await store.putTerminal({
    ...{ ...graded, rolloutId: 'r:2', outcome: 'cancelled', reward: null },
    cancel: { ...receipt, sandboxReleased: true, ms: 250 },
  });
  const reward = { total: 0, parts: { pass: 0, tests: 3, AC: 2, WA: 0, TLE: 1 } };
  await store.putTerminal({ ...graded, rolloutId: 'r:3', handler: 'made up', truncation: 'turns', reward });
  assert.equal((await store.getTerminal('r:3'))?.handler, 'made up', 'the rest of the store is there');
  const { sum } = await read(metrics);
  assert.equal(sum('rollouts_ended_total'), 4);
  assert.equal(sum('rollouts_ended_total', { kind: 'math', outcome: 'completed' }), 1);
  assert.equal(sum('rollouts_ended_total', { kind: 'other', outcome: 'completed' }), 1);
  assert.equal(sum('rollouts_reward_sum', { kind: 'math' }), 0.5);
  assert.equal(sum('rollouts_test_verdicts_total', { kind: 'other', verdict: 'AC' }), 2);
  assert.equal(sum('rollouts_test_verdicts_total'), 3);
  assert.equal(sum('rollouts_truncated_total', { limit: 'turns' }), 1);
  assert.equal(sum('rollouts_failed_total', { stage: 'run', type: 'SandboxLost' }), 1);
  assert.equal(sum('rollouts_retries_total', { stage: 'run', type: 'LlmUnreachable' }), 1);
  assert.equal(sum('rollouts_cancel_seconds_sum', { reason: 'stale' }), 0.25);
  assert.equal(sum('rollouts_part_seconds_sum', { part: 'run' }), 20);
  assert.equal(sum('rollouts_sampled_tokens_sum'), 60);
  assert.equal(sum('rollouts_turns_count'), 3);
  assert.deepEqual(
    [sum('rollouts_staleness_versions_sum'), sum('rollouts_staleness_versions_count')],
    [6, 3],
  );
});

test('groups by verdict and batches by their groups’ fates, once each', async () => {
  const metrics = new Metrics(['batches']);
  const groups = countGroups(new GroupStore(folder), metrics, { kinds: new Set(['math']) });
  const group = { groupId: 'g', handler: 'math', verdict: 'allZero' } as GroupResult;
  const counts = { admitted: 3, dropped: { allZero: 2, incomplete: 1 }, tokensAdmitted: 90 };
  const batch = {
    ...{ batchId: 'b', end: 'full', startedAt: '2026-01-01T00:00:00Z', endedAt: '2026-01-01T00:01:00Z' },
    ...{ counts: { ...counts, tokensDiscarded: null }, surplus: ['x'] },
  } as unknown as BatchResult;
  for (let times = 0; times < 2; times++) {
    await groups.putGroup({ ...group });
    await groups.putBatch({ ...batch });
  }
  const { sum, samples } = await read(metrics);
  assert.equal(sum('rollouts_groups_total', { kind: 'math', verdict: 'allZero' }), 1);
  assert.equal(sum('rollouts_batches_total', { end: 'full' }), 1);
  assert.equal(sum('rollouts_batch_seconds_sum'), 60);
  const fates = samples.filter(({ name }) => name === 'rollouts_batch_groups_total');
  assert.deepEqual(
    fates.map(({ labels, value }) => [labels.fate, value]),
    [
      ['admitted', 3],
      ['dropped', 3],
      ['surplus', 1],
    ],
  );
  assert.equal(sum('rollouts_batch_sample_tokens', { fate: 'admitted' }), 90);
});

test('activities by their ends, failures by type', async () => {
  const metrics = new Metrics(['activities']);
  const scheduled = { activityType: 'run', currentAttemptScheduledTimestampMs: Date.now() - 5000 };
  const interceptors = [withWork, countActivities(metrics)];
  const env = new MockActivityEnvironment(scheduled, { interceptors });
  await env.run(async () => 'fine');
  for (const error of [
    ApplicationFailure.create({ type: 'SandboxLost' }),
    ApplicationFailure.create({ type: 'made up' }),
    new CancelledFailure('CANCELLED'),
  ]) {
    await assert.rejects(
      env.run(async () => {
        throw error;
      }),
    );
  }
  const { sum } = await read(metrics);
  const ends = ['ok', 'failed', 'cancelled'];
  assert.deepEqual(
    ends.map((end) => sum('rollouts_activity_seconds_count', { activity: 'run', end })),
    [1, 2, 1],
  );
  assert.equal(sum('rollouts_activity_failures_total', { activity: 'run', type: 'SandboxLost' }), 1);
  assert.equal(sum('rollouts_activity_failures_total', { activity: 'run', type: 'Other' }), 1);
  assert.equal(sum('rollouts_activity_running', { activity: 'run' }), 0);
  assert.ok(sum('rollouts_activity_wait_seconds_sum', { activity: 'run' }) >= 20);
});

test('what a model calls its tools makes no labels', async () => {
  const metrics = new Metrics(['agents']);
  const appended: unknown[] = [];
  const ledger = { appendLedger: async (...args: unknown[]) => void appended.push(args) };
  const sandboxes = countAgents(ledger as unknown as SandboxClient, metrics);
  const result = (tool: string, status: ToolResult['status'], exitCode: number | null): ToolResult => ({
    ...{ callId: '0.0', tool, status, exitCode, text: '', ms: 100 },
  });
  const results = [
    result('invented', 'refused', null),
    result('bash', 'ok', 0),
    result('bash', 'ok', 7),
    result('bash', 'refused', null),
    result('bash', 'timeout', null),
  ];
  const observed: LedgerRecord = { kind: 'observed', turn: 0, results, messages: [], deltaIds: [1, 2] };
  await sandboxes.appendLedger('s', { fence: 1, seq: 0, record: observed });
  assert.equal(appended.length, 1);
  const { samples, sum } = await read(metrics);
  const tools = samples.filter(({ name }) => name === 'rollouts_tool_calls_total');
  assert.deepEqual(
    tools.map(({ labels: { tool, status, exit }, value }) => [tool, status, exit, value]),
    [
      ['other', 'refused', 'none', 1],
      ['bash', 'ok', 'zero', 1],
      ['bash', 'ok', 'nonzero', 1],
      ['bash', 'refused', 'none', 1],
      ['bash', 'timeout', 'none', 1],
    ],
  );
  assert.equal(sum('rollouts_tool_seconds_count', { tool: 'bash' }), 3);
  assert.equal(sum('rollouts_tokens_total', { source: 'observed' }), 2);
});

test('a record that the host refuses counts nothing', async () => {
  const metrics = new Metrics(['agents']);
  const refusing = { appendLedger: () => Promise.reject(new Error('fence')) } as unknown as SandboxClient;
  const record: LedgerRecord = { kind: 'observed', turn: 0, results: [], messages: [], deltaIds: [1, 2] };
  const appended = countAgents(refusing, metrics).appendLedger('s', { fence: 1, seq: 0, record });
  await assert.rejects(appended, /fence/);
  assert.equal((await read(metrics)).sum('rollouts_tokens_total'), 0);
});

test('requests for tokens, and whoever waits for a server', async () => {
  const metrics = new Metrics(['llm']);
  let told = (_waiting: boolean) => {};
  const source = countRequests(
    {
      open: async (_name, { onWaiting }) => {
        told = (waiting) => onWaiting?.(waiting);
        return { ...letterPolicy({ replies: ['abc'] }), close: () => {} };
      },
    },
    metrics,
  );
  const signal = new AbortController().signal;
  const waits: boolean[] = [];
  const policy = await source.open('r', { signal, label: 'policy', onWaiting: (one) => waits.push(one) });
  const request = { promptIds: [1, 2, 3, 4], maxTokens: 9, temperature: 1, topP: 1 };
  const { ids, server } = await policy.generate(request, signal);
  told(true);
  const { sum } = await read(metrics);
  assert.equal(sum('rollouts_llm_requests_total', { server, finish: 'stop' }), 1);
  assert.equal(sum('rollouts_llm_prompt_tokens_total', { server }), 4);
  assert.equal(sum('rollouts_llm_sampled_tokens_total', { server }), ids.length);
  assert.equal(sum('rollouts_llm_waiting'), 1);
  assert.deepEqual(waits, [true], 'the run hears of it as well');
});

test('a server that nobody asks any more is forgotten', async () => {
  const metrics = new Metrics(['llm']);
  const open = async () => ({ ...letterPolicy({ replies: ['abc'] }), close: () => {} });
  const source = countRequests({ open }, metrics, -1);
  const { signal } = new AbortController();
  const policy = await source.open('r', { signal, label: 'policy' });
  const { server } = await policy.generate({ promptIds: [1], maxTokens: 9, temperature: 1, topP: 1 }, signal);
  assert.ok(!(await metrics.text()).includes(server));
});

test('a port that is taken is no reason to stop, and is waited for', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await until(() => other.listening, 'the other listens');
  const { port } = other.address() as AddressInfo;
  const said: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void said.push(JSON.parse(line).msg) });
  const metrics = new Metrics(['gateway']);
  const common = { address: '127.0.0.1', port, metrics, more: async () => 'more 1', log };
  const listener = new MetricsListener({ ...common, againMs: 20 });
  listener.start();
  await until(() => said.length > 0, 'a word on the port');
  assert.deepEqual(said, ['metrics are not served yet']);
  other.close();
  await until(() => said.length > 1, 'a word on the listener');
  const answer = await fetch(`http://127.0.0.1:${port}/metrics`);
  assert.match(answer.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
  const { sum, types } = parseScrape(await answer.text());
  assert.equal(sum('more'), 1);
  assert.equal(types.get('rollouts_http_request_seconds'), 'histogram');
  assert.equal((await fetch(`http://127.0.0.1:${port}/other`)).status, 404);
  await listener.close();
});
