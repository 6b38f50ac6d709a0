import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Context } from '@temporalio/activity';
import { ActivityFailure, ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { InvalidTaskData } from '../../activities/handlers/registry.ts';
import { loadConfig } from '../../config/load.ts';
import { RolloutError } from '../../contracts/failures.ts';
import { LlmServer } from '../../contracts/llm.ts';
import { type LogComponent, makeLogger, temporalLogger } from '../../workers/log.ts';
import { redacted } from '../../workers/redact.ts';
import { stageLines } from '../../workers/stage-lines.ts';
import { withWork } from '../../workers/work-context.ts';

/** A logger of a component, and the lines it has written. */
function logged(component: LogComponent, log: Record<string, unknown> = {}) {
  const config = loadConfig({ env: {}, flags: { log, sandbox: { host: 'host-7' } } });
  const lines: Record<string, unknown>[] = [];
  const logger = makeLogger(component, config, { write: (line) => void lines.push(JSON.parse(line)) });
  return { logger, lines, config };
}

const request = {
  rolloutId: 'batch:task:3',
  task: { handler: 'math', id: 'task', data: { question: 'What is 6 × 7?', answer: 'forty-two' } },
};
const info = {
  activityType: 'run',
  workflowType: 'rollout',
  workflowExecution: { workflowId: request.rolloutId, runId: 'run-1' },
};

test('a line from anywhere within a stage says of which rollout, attempt, stage and host it is', async () => {
  const { logger, lines } = logged('worker');
  const deepInside = async () => {
    await new Promise((resolve) => setTimeout(resolve, 1));
    logger.info({ tool: 'bash' }, 'a tool is slow');
  };
  const env = new MockActivityEnvironment(info, { interceptors: [withWork] });
  await env.run((_input: unknown) => deepInside(), { request, attempt: 2 });
  logger.info('outside');
  const [inside, outside] = lines;
  const { component, host, rollout, attempt, stage, tool } = inside ?? {};
  assert.deepEqual(
    { component, host, rollout, attempt, stage, tool },
    {
      ...{ component: 'worker', host: 'host-7', rollout: 'batch:task:3' },
      ...{ attempt: 2, stage: 'run', tool: 'bash' },
    },
  );
  assert.deepEqual([outside?.host, outside?.rollout, outside?.stage], ['host-7', undefined, undefined]);
});

test('each stage of a rollout ends with a line', async () => {
  const { logger, lines } = logged('worker');
  const env = new MockActivityEnvironment(info, { interceptors: [withWork, stageLines(logger)] });
  const report = { ended: 'finished', turns: 3, tokens: 70, ms: 900, policyVersions: [1, 1] };
  await env.run(async (_input: unknown) => report, { request, attempt: 2 });
  const { msg, rollout, attempt, stage, ended, turns, tokens, ms } = lines[0] ?? {};
  assert.deepEqual(
    [msg, rollout, attempt, stage, ended, turns, tokens, ms, lines.length],
    ['its agent has stopped', 'batch:task:3', 2, 'run', 'finished', 3, 70, 900, 1],
  );
});

test('what the SDK and an activity’s own log say comes in the same form, with the same fields', async () => {
  const { logger, lines, config } = logged('worker');
  const env = new MockActivityEnvironment(info, {
    ...{ interceptors: [withWork], logger: temporalLogger(logger, config.log) },
  });
  await env.run(async (_input: unknown) => Context.current().log.warn('no news', { apiKey: 'k-123' }), {
    request,
    attempt: 2,
  });
  const line = lines.find(({ msg }) => msg === 'no news') ?? {};
  assert.deepEqual(
    [line.level, line.rollout, line.attempt, line.stage, line.host, line.apiKey],
    [40, 'batch:task:3', 2, 'run', 'host-7', '[redacted]'],
  );
  assert.equal(line.taskToken, undefined);
  const lost = async (_input: unknown) => {
    throw ApplicationFailure.create({ type: 'SandboxLost', message: 'the host is gone' });
  };
  await assert.rejects(env.run(lost, { request, attempt: 2 }));
  const failed = lines.find(({ msg }) => msg === 'Activity failed') ?? {};
  assert.deepEqual([failed.rollout, failed.attempt, failed.stage], ['batch:task:3', 2, 'run']);
});

test('secrets, answers and tasks’ data are in no line, however deep and whoever quotes them', () => {
  const { logger, lines } = logged('gateway');
  const secrets = [
    's3cret-1',
    's3cret-2',
    's3cret-3',
    's3cret-4',
    's3cret-5',
    's3cret-6',
    's3cret-7',
    'forty-two',
  ];
  const error = Object.assign(new Error('GET failed: authorization: Bearer s3cret-4'), {
    request: { headers: { 'X-Api-Key': 's3cret-5' } },
  });
  logger.error(
    {
      headers: { Authorization: 'Bearer s3cret-1', accept: 'text/plain' },
      servers: [{ url: 'http://llm', apiToken: 's3cret-2', nested: { deep: { password: 's3cret-3' } } }],
      sent: request,
      outcome: { answer: 'forty-two' },
      err: error,
    },
    'asked http://user:s3cret-6@llm:8000/v1 with Bearer s3cret-7',
  );
  const [line] = lines;
  const text = JSON.stringify(line);
  for (const secret of secrets) assert.ok(!text.includes(secret), `${secret} in ${text}`);
  assert.deepEqual(line?.sent, { rolloutId: 'batch:task:3', task: { handler: 'math', id: 'task' } });
  assert.deepEqual(line?.headers, { Authorization: '[redacted]', accept: 'text/plain' });
  assert.equal(line?.msg, 'asked http://[redacted]@llm:8000/v1 with Bearer [redacted]');
  assert.match(text, /"type":"Error"/);
});

test('what a grader said stays out of lines, in whatever it failed; the type stays', () => {
  const { logger, lines, config } = logged('worker');
  const failure = ApplicationFailure.create({
    ...{ type: 'GraderFailed', message: 'the gold answer is no mathematics: forty-two' },
    details: [{ failure: { type: 'GraderFailed', stage: 'evaluate', message: 'forty-two is none' } }],
  });
  temporalLogger(logger, config.log).warn('Activity failed', {
    error: new ActivityFailure('evaluate failed', 'evaluate', '1', 'IN_PROGRESS', 'w', failure),
  });
  logger.warn({ type: 'GraderFailed', stage: 'evaluate', message: 'not forty-two' }, 'trying again');
  logger.warn({ err: new RolloutError('SandboxLost', 'the host is gone') }, 'trying again');
  const problems = [{ path: ['answer'], message: 'forty-two is no number' }];
  logger.warn({ err: new InvalidTaskData(request.task, problems) }, 'not begun');
  const text = JSON.stringify(lines);
  assert.ok(!text.includes('forty-two'), text);
  const errors = lines.map(({ err }) => err as { failure?: string; stack: string; message: string });
  assert.equal(errors[0]?.failure, 'GraderFailed');
  assert.match(errors[0]?.stack ?? '', /^ +at .*log\.test\.ts/);
  assert.equal(lines[1]?.type, 'GraderFailed');
  assert.match(errors[2]?.message ?? '', /the host is gone/);
});

test('an error that is told as text stays text', () => {
  const { logger, lines, config } = logged('worker');
  temporalLogger(logger, config.log).warn('retry', { error: 'Status { code: Cancelled }' });
  assert.equal(lines[0]?.err, 'Status { code: Cancelled }');
});

test('keys in addresses are in no line', () => {
  const { logger, lines } = logged('worker');
  logger.warn('GET http://llm:8000/v1?api_key=s3cret-1&n=2&X-Amz-Signature=s3cret-2 failed');
  assert.equal(
    lines[0]?.msg,
    'GET http://llm:8000/v1?api_key=[redacted]&n=2&X-Amz-Signature=[redacted] failed',
  );
});

test('what is no secret stays, counts of tokens among it', () => {
  const fields = { tokens: 12, promptTokens: 3, turn: 1, url: 'http://llm:8000', at: new Date(0), list: [1] };
  assert.deepEqual(redacted(fields), fields);
  const server = LlmServer.parse({ url: 'http://llm:8000', dialect: 'vllm', tokenizer: '/models/q' });
  assert.deepEqual(redacted({ server }), { server });
});

test('each component has its own level', () => {
  const log = { level: 'warn', levels: { worker: 'debug', temporal: 'error' } };
  const worker = logged('worker', log);
  worker.logger.debug('fine');
  const sdk = temporalLogger(worker.logger, worker.config.log);
  sdk.warn('not wanted');
  sdk.error('wanted');
  const gateway = logged('gateway', log);
  gateway.logger.info('not wanted');
  gateway.logger.warn('wanted');
  assert.deepEqual(
    [...worker.lines, ...gateway.lines].map(({ component, msg }) => `${component}: ${msg}`),
    ['worker: fine', 'worker: wanted', 'gateway: wanted'],
  );
});
