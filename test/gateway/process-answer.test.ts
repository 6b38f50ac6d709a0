import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { assembleTrajectories } from '../../activities/trajectory/assemble.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { answerOf, criticalErrorOf, messagesOf } from '../../gateway/process/answer.ts';
import { ProcessRequest, rolloutIdOf, rolloutOf } from '../../gateway/process/request.ts';
import { ledgers, request } from '../trajectory/records.ts';

/** Recorded by this service: SmolLM2 adds two numbers in two turns, after a prompt with worked examples. */
const recorded = Trajectory.parse(
  JSON.parse(readFileSync(new URL('../fixtures/trajectories/two-turns.jsonl', import.meta.url), 'utf8')),
);

const record: RolloutResult = {
  schemaVersion: 1,
  rolloutId: 'process:1',
  workflowRunId: 'run',
  handler: 'math',
  taskId: 'task',
  sample: 0,
  groupId: null,
  batchId: null,
  outcome: 'completed',
  reward: { total: 1, parts: { correct: 1 } },
  truncation: null,
  cancel: null,
  failure: null,
  retried: [],
  attempt: 1,
  host: 'a',
  backend: 'bubblewrap',
  policyVersions: [0, 0],
  trajectory: null,
  startedAt: '2026-01-01T00:00:00.000Z',
  endedAt: '2026-01-01T00:00:10.000Z',
  timings: { initMs: 1000, runMs: 4000, evaluateMs: 500, queueMs: 4500, totalMs: 10_000 },
};
const parts = { instance: {}, record, sequence: recorded, outcome: {}, tools: [] };

test('the messages of a recorded trajectory are its tokens: each sample with its exact prompt', () => {
  const messages = messagesOf(recorded);
  const [first, second] = messages.filter(({ input_ids }) => input_ids !== null);
  const [one, two] = recorded.turns;
  assert.ok(first && second && one && two);
  assert.deepEqual(first.input_ids, recorded.input_ids);
  assert.deepEqual(first.token_ids, recorded.output_ids.slice(...one.sampled));
  assert.deepEqual(first.logprobs, recorded.logprobs.slice(...one.sampled));
  assert.equal(first.tool_calls?.[0]?.name, 'bash');
  assert.deepEqual(second.input_ids, [
    ...recorded.input_ids,
    ...recorded.output_ids.slice(0, two.sampled[0]),
  ]);
  assert.equal(second.tool_calls, undefined);
  assert.equal(messages.at(-1), second);
  const whole = [...recorded.input_ids, ...recorded.output_ids.slice(0, two.sampled[1])];
  assert.deepEqual(
    messages.flatMap(({ token_ids }) => token_ids),
    whole,
  );
});

test('of any run, all tokens of the messages up to the last sample are the sequence up to there', () => {
  fc.assert(
    fc.property(ledgers, (ledger) => {
      const context = { request, workflowRunId: 'r', attempt: 1, reward: null, metadata: {} };
      for (const sequence of assembleTrajectories(ledger, context)) {
        const messages = messagesOf(sequence);
        const end = sequence.turns.at(-1)?.sampled[1];
        const tokens = messages.flatMap(({ token_ids }) => token_ids);
        const whole = [...sequence.input_ids, ...sequence.output_ids.slice(0, end)];
        assert.deepEqual(tokens, end === undefined ? [] : whole);
        const samples = messages.filter(({ logprobs }) => logprobs !== null);
        const sampled = samples.reduce((sum, { token_ids }) => sum + token_ids.length, 0);
        assert.equal(sampled, sequence.loss_mask.filter((mask) => mask === 1).length);
        for (const { token_ids, logprobs } of samples) assert.equal(logprobs?.length, token_ids.length);
      }
    }),
  );
});

test('an answer says what the record says', () => {
  const patch = '--- a\n+++ b\n';
  const answer = answerOf({
    ...parts,
    instance: { instance_id: 'acme-1', trajectory_id: 3 },
    outcome: { patch: gzipSync(patch).toString('base64') },
    tools: [{ name: 'bash', description: 'a shell', parameters: { type: 'object' } }],
  });
  const { messages: _, ...rest } = answer;
  assert.deepEqual(rest, {
    instance_id: 'acme-1',
    trajectory_id: 3,
    rollout_id: 'process:1',
    resolved: true,
    reward: 1,
    git_patch: patch,
    success: true,
    error: null,
    finish: true,
    end_properly: true,
    critical_error: null,
    filter: false,
    tools: [
      {
        type: 'function',
        function: { name: 'bash', description: 'a shell', parameters: { type: 'object' } },
      },
    ],
    timing: {
      init_time: 1,
      run_time: 4,
      eval_time: 0.5,
      others_time: 4.5,
      counted_elapsed: 5.5,
      timeout_triggered: false,
    },
  });
  assert.equal(answerOf({ ...parts, outcome: { patch } }).git_patch, patch, 'a patch that is not packed');
});

test('what infrastructure did is a critical error of its stage, and never a reward', () => {
  const failure = (type: 'SandboxFailed' | 'StageDeadline', stage: 'init' | 'evaluate') =>
    ({ type, stage, cause: 'infrastructure', message: 'm', attempt: 1 }) as const;
  const failed = (at: ReturnType<typeof failure>) =>
    ({ ...record, outcome: 'failed', reward: null, failure: at }) as const;
  assert.equal(criticalErrorOf(failed(failure('SandboxFailed', 'init'))), 'init');
  assert.equal(criticalErrorOf(failed(failure('SandboxFailed', 'evaluate'))), 'eval');
  assert.equal(criticalErrorOf(failed(failure('StageDeadline', 'evaluate'))), 'timeout');
  const answer = answerOf({
    ...parts,
    record: failed(failure('SandboxFailed', 'init')),
    sequence: undefined,
  });
  assert.deepEqual(
    [answer.resolved, answer.success, answer.filter, answer.error, answer.messages],
    [false, false, true, 'SandboxFailed: m', []],
  );
  const deadline = answerOf({
    ...parts,
    record: { ...record, outcome: 'truncated', truncation: 'deadline' },
  });
  assert.deepEqual([deadline.critical_error, deadline.timing.timeout_triggered], ['timeout', true]);
  const cut = answerOf({ ...parts, record: { ...record, outcome: 'truncated', truncation: 'tokens' } });
  assert.deepEqual([cut.critical_error, cut.filter, cut.success], [null, true, false]);
  assert.equal(answerOf({ ...parts, unread: 'no file' }).critical_error, 'final_result');
});

test('an instance is a task of the handler of its source, also in the layout of verl', () => {
  const asked = ProcessRequest.parse({
    instance: {
      data_source: 'openai/gsm8k',
      trajectory_id: 2,
      prompt: [
        { role: 'system', content: 's' },
        { role: 'user', content: 'What is 1 + 1?' },
      ],
      reward_model: { style: 'rule', ground_truth: 2 },
      extra_info: { split: 'train', index: 7 },
    },
    sampling_params: { model: 'm', api_key: 'k', temperature: 0.6, max_iterations: 35, top_p: null },
  });
  const defaults = { sampling: { topP: 0.9 }, limits: { toolTimeoutSeconds: 5 } };
  const { task, ...rest } = rolloutOf(asked, { 'openai/gsm8k': 'math' }, defaults);
  assert.deepEqual([task.handler, task.id], ['math', 'openai/gsm8k_unknown_train_7']);
  assert.deepEqual([task.data.question, task.data.answer], ['What is 1 + 1?', '2']);
  assert.deepEqual(rest, {
    sample: 2,
    groupId: 'openai/gsm8k_unknown_train_7',
    batchId: 'process',
    sampling: { topP: 0.9, temperature: 0.6 },
    limits: { toolTimeoutSeconds: 5, maxTurns: 35 },
  });
  const plain = ProcessRequest.parse({ instance: { instance_id: 'a-1', repo: 'a' } });
  assert.deepEqual(rolloutOf(plain, { swebench: 'swe' }, {}).task, {
    handler: 'swe',
    id: 'a-1',
    data: { instance_id: 'a-1', repo: 'a' },
  });
  assert.equal(rolloutIdOf('a b'), rolloutIdOf('a b'));
  assert.match(rolloutIdOf('a b'), /^process:[0-9a-f]{64}$/);
});
