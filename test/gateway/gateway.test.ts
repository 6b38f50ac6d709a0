import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { METRICS } from '../../workers/metrics/table.ts';
import { parseScrape } from '../support/scrape.ts';
import { type Caller, callerOf } from './caller.ts';
import { served } from './served.ts';

const all = served();
const caller = callerOf(all);
const call: Caller['call'] = async (...said) => (await caller()).call(...said);

const task = { handler: 'math', id: 'task-1', data: { question: 'What is 1 + 1?', answer: '#### 2' } };

test('the pool of LLM servers is looked at and changed', async () => {
  const { tokens } = await caller();
  const stale = await call('POST', '/v1/cancel-stale', { body: { belowVersion: 3 } });
  assert.equal(stale.json().aborted, 0);
  const pool = (await call('GET', '/v1/pools/default', { token: tokens.dashboard })).json();
  assert.deepEqual([pool.members, pool.floor], [[], 3], 'the floor that was set with what is stale');
  const floor = (version: number, token = tokens.operator) =>
    call('POST', '/v1/policies/default/floor', { body: { version }, token });
  const raised = await floor(4);
  assert.deepEqual(
    [raised.status, raised.json().state.floor, raised.json().silent],
    [200, 4, []],
    raised.text,
  );
  assert.match((await floor(2)).json().detail, /the floor is 4, and is only raised/);
  assert.equal((await floor(5, tokens.trainer)).status, 403);
  const swap = { mode: 'drain', version: -1, folder: '/w' };
  const wrong = await call('POST', '/v1/policies/default/version', {
    body: swap,
    token: tokens.operator,
  });
  assert.deepEqual([wrong.status, wrong.json().errors[0].field], [422, '/version']);
  assert.equal((await call('GET', '/v1/pools/other')).status, 404);
});

test('bad input is answered with the field that is wrong', async () => {
  const refused = async (status: number, pattern: RegExp, method: string, place: string, body?: unknown) => {
    const answer = await call(method, place, body === undefined ? {} : { body });
    assert.deepEqual(
      [answer.status, answer.type],
      [status, 'application/problem+json; charset=utf-8'],
      answer.text,
    );
    assert.match(answer.json().detail, pattern);
    return answer.json();
  };
  const problem = await refused(422, /\/limits\/maxTurns/, 'POST', '/v1/rollouts', {
    task,
    limits: { maxTurns: 0 },
  });
  assert.equal(problem.errors[0].field, '/limits/maxTurns');
  assert.equal(problem.title, 'Unprocessable Entity');
  const fieldOf = async (pattern: RegExp, place: string, body: unknown) => {
    const { type, errors } = await refused(422, pattern, 'POST', place, body);
    return [type.replace('urn:rollouts:failure:', ''), errors[0].field];
  };
  const [empty, unknown] = [
    { ...task, data: {} },
    { ...task, handler: 'nope' },
  ];
  const oneGroup = { groups: 1 };
  for (const [place, at, body] of [
    ['/v1/rollouts', '/task', (task: unknown) => ({ task })],
    ['/v1/groups', '/task', (task: unknown) => ({ task })],
    [
      '/v1/batches',
      '/sources/0/tasks/1',
      (bad: unknown) => ({ sources: [{ tasks: [task, bad] }], rules: oneGroup }),
    ],
  ] as const) {
    assert.deepEqual(await fieldOf(/question/, place, body(empty)), ['InvalidTask', `${at}/data/question`]);
    const handler = await fieldOf(/no handler is called "nope"/, place, body(unknown));
    assert.deepEqual(handler, ['UnknownHandler', `${at}/handler`]);
  }
  const mistyped = await refused(422, /there is no such field/, 'POST', '/v1/rollouts', {
    ...{ task, sampling: { temprature: 0.2 }, 'sam/ple': 1 },
  });
  assert.deepEqual(
    mistyped.errors.map(({ field }: { field: string }) => field),
    ['/sampling/temprature', '/sam~1ple'],
  );
  await refused(422, /\/batchid: there is no such field/, 'GET', '/v1/rollouts?batchid=b');
  const rules = { groups: 1, overSampling: 2 };
  await refused(422, /\/rules\/overSampling/, 'POST', '/v1/batches', { sources: [{ tasks: [task] }], rules });
  await refused(422, /rolloutId/, 'POST', '/v1/rollouts', { task, rolloutId: '../x' });
  await refused(422, /wait/, 'GET', '/v1/rollouts/x?wait=1000');
  await refused(404, /there is no rollout nobody/, 'GET', '/v1/rollouts/nobody');
  await refused(404, /nobody/, 'POST', '/v1/rollouts/nobody/cancel', {});
  await refused(404, /there is no GET \/v2/, 'GET', '/v2');
  await refused(400, /JSON/, 'POST', '/v1/rollouts', '{');
  await refused(413, /too large/, 'POST', '/v1/rollouts', { task, groupId: 'x'.repeat(200_000) });
  await refused(422, /name rollouts/, 'POST', '/v1/cancel', { selection: {} });
});

test('only who has a token with the scope of a route may use it', async () => {
  const { tokens } = await caller();
  const status = async (method: string, place: string, token: string | null) =>
    (await call(method, place, { token, ...(method === 'POST' ? { body: { task } } : {}) })).status;
  assert.equal(await status('GET', '/v1/rollouts', null), 401);
  assert.equal(await status('GET', '/v1/rollouts', `${tokens.trainer}x`), 401);
  assert.equal(await status('GET', '/v1/rollouts', tokens.dashboard), 200);
  assert.equal(await status('POST', '/v1/rollouts', tokens.dashboard), 403);
  assert.doesNotMatch(readFileSync(all.tokensFile, 'utf8'), new RegExp(tokens.trainer));
  await assert.rejects(all.token('trainer', 'read'), /has a token of trainer/);
  await assert.rejects(all.token('other', 'everything'), /--scopes: .*read/);
  assert.equal(await status('GET', '/healthz', null), 200);
  assert.equal(await status('GET', '/openapi.json', null), 200);
});

test('its description is valid OpenAPI 3.1 and names every route', async () => {
  const description = (await call('GET', '/openapi.json')).json();
  assert.equal(description.openapi, '3.1.0');
  const { valid, errors } = await new Validator().validate(description);
  assert.ok(valid, JSON.stringify(errors));
  assert.deepEqual(Object.keys(description.paths).sort(), [
    ...['add_llm_server', 'cancel', 'clear_llm_server'].map((call) => `/${call}`),
    '/healthz',
    '/process',
    '/readyz',
    ...['start', 'status', 'stop'].map((call) => `/${call}`),
    '/v1/batches',
    ...['', '/cancel', '/events', '/groups'].map((end) => `/v1/batches/{batchId}${end}`),
    '/v1/cancel',
    '/v1/cancel-stale',
    '/v1/groups',
    ...['', '/cancel', '/pause', '/resume'].map((end) => `/v1/groups/{groupId}${end}`),
    '/v1/hosts',
    ...['floor', 'version'].map((change) => `/v1/policies/{pool}/${change}`),
    '/v1/pools/{pool}',
    ...['add', 'drain', 'label', 'remove'].map((change) => `/v1/pools/{pool}/${change}`),
    '/v1/rollouts',
    '/v1/rollouts/{rolloutId}',
    '/v1/rollouts/{rolloutId}/cancel',
    '/v1/rollouts/{rolloutId}/conversation',
    '/v1/rollouts/{rolloutId}/pause',
    '/v1/rollouts/{rolloutId}/resume',
    ...['timeline', 'trajectory'].map((part) => `/v1/rollouts/{rolloutId}/${part}`),
    '/v1/service',
    '/v1/tokens/texts',
  ]);
});

test('its metrics are by route and status, for those who may read', async () => {
  const { tokens } = await caller();
  assert.equal((await call('GET', '/metrics', { token: null })).status, 401);
  const before = parseScrape((await call('GET', '/metrics', { token: tokens.dashboard })).text);
  for (const id of ['nobody', 'nobody-else']) await call('GET', `/v1/rollouts/${id}`);
  await call('GET', '/there/is/no/such/place');
  const after = await call('GET', '/metrics', { token: tokens.dashboard });
  assert.match(after.type ?? '', /^text\/plain; version=0\.0\.4/);
  const { sum, types, samples } = parseScrape(after.text);
  const more = (labels: Record<string, string>) => {
    const [was = 0, is = 0] = [before, { sum }].map((one) =>
      one.sum('rollouts_http_request_seconds_count', labels),
    );
    return is - was;
  };
  assert.equal(more({ method: 'GET', route: '/v1/rollouts/:rolloutId', code: '404' }), 2);
  assert.equal(more({ route: 'none', code: '404' }), 1);
  assert.equal(sum('rollouts_http_requests_open'), 1, 'this one');
  for (const [name, { component }] of Object.entries(METRICS))
    assert.equal(types.has(name), component === 'gateway', name);
  assert.ok(!samples.some(({ labels }) => Object.values(labels).includes('nobody')));
});
