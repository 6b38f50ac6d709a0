import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { pino } from 'pino';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { tokenCommand } from '../../client/commands/token.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { makeApp } from '../../gateway/app.ts';
import { readTokens } from '../../gateway/auth.ts';
import type { App } from '../../gateway/gateway.ts';
import { METRICS } from '../../workers/metrics/table.ts';
import { isOpen } from '../support/open-files.ts';
import { parseScrape } from '../support/scrape.ts';
import { until } from '../support/until.ts';
import { gate } from '../workflows/kept.ts';
import { placement, report, untilCancelled, usual } from '../workflows/scripted.ts';
import { scriptedService } from '../workflows/scripted-service.ts';
import { gradeAsTasksSay } from './graded.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'gateway-'));
after(() => rmSync(folder, { recursive: true }));
const store = new TrajectoryStore(path.join(folder, 'store'));
const service = scriptedService(store);
const tokensFile = path.join(folder, 'tokens.json');
const tokens: Record<string, string> = {};

/** As `rollouts token` does it. */
async function makeToken(name: string, scopes: string): Promise<void> {
  const config = loadConfig({ env: {}, flags: { gateway: { tokens: tokensFile } } });
  const result = (value: unknown) => Object.assign(tokens, { [name]: (value as { token: string }).token });
  await tokenCommand(config, name, scopes, { json: true, note: () => {}, result });
}

let app: Promise<App> | undefined;
after(async () => (await app)?.close());

/** Made at the first call, when the service stands. */
async function address(): Promise<string> {
  app ??= startApp();
  const { port } = (await app).server.address() as AddressInfo;
  return `http://127.0.0.1:${port}`;
}

async function startApp(): Promise<App> {
  await makeToken('trainer', 'read,write');
  await makeToken('dashboard', 'read');
  await makeToken('operator', 'admin');
  const made = await makeApp({
    config: loadConfig({ env: {}, flags: { gateway: { bodyBytes: 100_000 }, rollout: CONFIGURED } }),
    client: service.client,
    store,
    handlers: await loadHandlers({ handlers: [] }, { python: () => loadTools().python }),
    tokens: readTokens(tokensFile),
    log: pino({ level: 'error' }),
  });
  await made.listen({ host: '127.0.0.1', port: 0 });
  return made;
}

/** Other than the defaults. */
const CONFIGURED = { sampling: { temperature: 0.7, topP: 0.9 }, limits: { maxTurns: 3 } };

const task = { handler: 'math', id: 'task-1', data: { question: 'What is 1 + 1?', answer: '#### 2' } };

async function call(
  method: string,
  place: string,
  given: { body?: unknown; headers?: Record<string, string>; token?: string | null } = {},
) {
  const url = await address();
  const { body, headers = {}, token = tokens.trainer } = given;
  const response = await fetch(`${url}${place}`, {
    method,
    headers: {
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    text,
    json: () => JSON.parse(text),
  };
}

test('a rollout is begun once for each key, waited for, and its record is that of the workflow', async () => {
  const goOn = gate();
  service.workers.script.run = async () => {
    await goOn.passed;
    return report;
  };
  const key = { headers: { 'idempotency-key': 'batch 7, sample 3' } };
  const first = await call('POST', '/v1/rollouts', { ...key, body: { task } });
  assert.equal(first.status, 202, first.text);
  const { rolloutId } = first.json();
  assert.match(rolloutId, /^http:[0-9a-f]{64}$/);
  const again = await call('POST', '/v1/rollouts', { ...key, body: { task } });
  assert.deepEqual([again.status, again.json().rolloutId], [202, rolloutId]);
  const named = await call('POST', '/v1/rollouts', { ...key, body: { task, rolloutId: 'another' } });
  assert.deepEqual([named.status, named.json().errors[0].field], [422, '/rolloutId']);
  const other = await call('POST', '/v1/rollouts', { ...key, body: { task, sample: 1 } });
  assert.deepEqual([other.status, other.type], [409, 'application/problem+json; charset=utf-8']);
  const open = await call('GET', `/v1/rollouts/${rolloutId}`);
  assert.equal(open.json().done, false);
  const waiting = call('GET', `/v1/rollouts/${rolloutId}?wait=30`);
  goOn.open();
  const { done, record } = (await waiting).json();
  assert.equal(done, true);
  assert.deepEqual([record.outcome, record.reward], ['completed', { total: 0.5, parts: { correct: 0.5 } }]);
  assert.equal((await call('POST', '/v1/rollouts', { ...key, body: { task } })).json().rolloutId, rolloutId);
  assert.equal(service.workers.calls.filter((name) => name === 'init').length, 1);
});

test('what is not asked for is as configured, field by field', async () => {
  const seen = new Map<string, unknown>();
  service.workers.script.init = async ({ request }) => {
    seen.set(request.rolloutId, [request.sampling, request.limits.maxTurns, request.deadlines.runSeconds]);
    return placement;
  };
  const asked = { sampling: { temperature: 0.2 }, deadlines: { runSeconds: 7 } };
  await call('POST', '/v1/rollouts', { body: { task, rolloutId: 'configured', ...asked } });
  await service.client.result('configured');
  const sampling = { temperature: 0.2, topP: 0.9, maxTokensPerTurn: 256 };
  assert.deepEqual(seen.get('configured'), [sampling, 3, 7]);
  await call('POST', '/v1/groups', { body: { groupId: 'like-it', task, samples: 1, rollout: asked } });
  await call('GET', '/v1/groups/like-it?wait=60');
  assert.deepEqual(seen.get('like-it.0'), [sampling, 3, 7]);
});

test('a key holds beyond what Temporal remembers, by the record in the store', async () => {
  const body = { task, rolloutId: 'kept' };
  assert.equal((await call('POST', '/v1/rollouts', { body })).status, 202);
  const record = await service.client.result('kept');
  await store.putTerminal({ ...record, rolloutId: 'forgotten' }); // as one whose workflow is no longer kept
  const calls = service.workers.calls.length;
  const forgotten = { ...body, rolloutId: 'forgotten' };
  assert.equal((await call('POST', '/v1/rollouts', { body: forgotten })).status, 202);
  assert.equal((await call('POST', '/v1/rollouts', { body: { ...forgotten, sample: 2 } })).status, 409);
  assert.equal((await call('GET', '/v1/rollouts/forgotten')).json().record.rolloutId, 'forgotten');
  assert.equal((await call('POST', '/v1/rollouts/forgotten/cancel')).status, 202);
  assert.equal(service.workers.calls.length, calls, 'and none is run again');
});

test('what has ended is told while Temporal is away', async () => {
  const config = loadConfig({ env: {}, flags: { temporal: { address: service.address } } });
  const away = await RolloutClient.connect(config);
  await away.close();
  const log = pino({ level: 'silent' });
  const parts = {
    config,
    client: away,
    store,
    handlers: await loadHandlers({ handlers: [] }, { python: () => '' }),
  };
  const app = await makeApp({ ...parts, tokens: undefined, log });
  const look = async (id: string) => (await app.inject(`/v1/rollouts/${id}`)).statusCode;
  assert.deepEqual([await look('forgotten'), (await look('kept')) >= 500], [200, true]);
  await app.close();
});

test('rollouts are listed, paused, resumed and cancelled', async () => {
  const begun = gate();
  service.workers.script.init = async () => {
    begun.open();
    return untilCancelled();
  };
  await call('POST', '/v1/rollouts', { body: { task, rolloutId: 'steered', batchId: 'b' } });
  await begun.passed;
  let listed: { rolloutId: string }[] = [];
  while (listed.length === 0) listed = (await call('GET', '/v1/rollouts?batchId=b')).json().rollouts;
  assert.deepEqual(
    listed.map((one) => one.rolloutId),
    ['steered'],
  );
  const cancelled = await call('POST', '/v1/rollouts/steered/cancel', { body: { reason: 'stale' } });
  assert.equal(cancelled.status, 202);
  const { record } = (await call('GET', '/v1/rollouts/steered?wait=30')).json();
  assert.deepEqual([record.outcome, record.cancel.reason], ['cancelled', 'stale']);
  assert.equal(
    (await call('POST', '/v1/rollouts/steered/cancel')).status,
    202,
    'harmless on one that has ended',
  );
  assert.equal((await call('POST', '/v1/rollouts/steered/pause')).status, 409);

  const running = gate();
  service.workers.script.init = usual.init;
  let end!: () => void;
  service.workers.script.run = () =>
    new Promise((resolve) => {
      running.open();
      end = () => resolve({ ...report, ended: 'paused' });
    });
  service.workers.script.pause = async () => end();
  await call('POST', '/v1/rollouts', { body: { task, rolloutId: 'paused' } });
  await running.passed;
  assert.equal((await call('POST', '/v1/rollouts/paused/pause')).json().stage, 'paused');
  service.workers.script.run = usual.run;
  assert.equal((await call('POST', '/v1/rollouts/paused/resume')).status, 200);
  assert.equal((await call('GET', '/v1/rollouts/paused?wait=30')).json().record.outcome, 'completed');
});

test('many are ended by one call', async () => {
  service.workers.script.init = () => untilCancelled();
  for (const rolloutId of ['many-1', 'many-2'])
    await call('POST', '/v1/rollouts', { body: { task, rolloutId } });
  const swept = await call('POST', '/v1/cancel', {
    body: { selection: { rolloutIds: ['many-1', 'many-2'] }, reason: 'batchComplete' },
  });
  assert.deepEqual(swept.json(), { aborted: 0, signalled: 2, silentHosts: [] });
  assert.equal(
    (await call('GET', '/v1/rollouts/many-2?wait=30')).json().record.cancel.reason,
    'batchComplete',
  );
  assert.equal((await call('POST', '/v1/cancel-stale', { body: { belowVersion: 3 } })).json().aborted, 0);
});

test('a long trajectory is sent as it is read, and no further than to who goes', async () => {
  const content = 'x'.repeat(24_000_000);
  service.workers.script.evaluate = async (input) => {
    const result = await usual.evaluate(input);
    const { rolloutId, workflowRunId, attempt } = result;
    const long = { turns: [], input_ids: [], output_ids: [], loss_mask: [], messages: [{ content }] };
    const sequences = [long as never as Trajectory];
    return {
      ...result,
      trajectory: await store.putTrajectory({ rolloutId, workflowRunId, attempt }, sequences),
    };
  };
  await call('POST', '/v1/rollouts', { body: { task, rolloutId: 'long' } });
  const ended = async () => (await call('GET', '/v1/rollouts/long?wait=30')).json();
  await until(async () => (await ended()).done, 'the end of the rollout');
  const { trajectory } = (await ended()).record;
  const file = new URL(trajectory.uri).pathname;
  const left = new AbortController();
  const headers = { authorization: `Bearer ${tokens.trainer}`, accept: 'application/json' };
  const place = `${await address()}/v1/rollouts/long/trajectory`;
  const answer = await fetch(place, { headers, signal: left.signal });
  assert.equal(Number(answer.headers.get('content-length')), trajectory.bytes + 1);
  await answer.body?.getReader().read();
  assert.equal(isOpen(file), true, 'not read to its end for one part');
  left.abort();
  await until(() => !isOpen(file), 'the file to be closed when its reader has gone');
  const whole = await call('GET', '/v1/rollouts/long/trajectory', {
    headers: { accept: 'application/json' },
  });
  assert.equal(whole.json()[0].messages[0].content.length, content.length);
});

test('the pool of LLM servers is looked at and changed', async () => {
  const pool = (await call('GET', '/v1/pools/default', { token: tokens.dashboard as string })).json();
  assert.deepEqual([pool.members, pool.floor], [[], 3], 'the floor that was set with what is stale');
  const floor = (version: number, token = tokens.operator as string) =>
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
    token: tokens.operator as string,
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
  const status = async (method: string, place: string, token: string | null) =>
    (await call(method, place, { token, ...(method === 'POST' ? { body: { task } } : {}) })).status;
  assert.equal(await status('GET', '/v1/rollouts', null), 401);
  assert.equal(await status('GET', '/v1/rollouts', `${tokens.trainer}x`), 401);
  assert.equal(await status('GET', '/v1/rollouts', tokens.dashboard as string), 200);
  assert.equal(await status('POST', '/v1/rollouts', tokens.dashboard as string), 403);
  assert.doesNotMatch(readFileSync(tokensFile, 'utf8'), new RegExp(tokens.trainer as string));
  await assert.rejects(makeToken('trainer', 'read'), /has a token of trainer/);
  await assert.rejects(makeToken('other', 'everything'), /--scopes: .*read/);
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

const sum = (id: string, rewards: number[]) => ({
  ...{ handler: 'math', id },
  data: { question: 'What is 1 + 1?', answer: '#### 2', rewards },
});

test('a group is begun once for each key, waited for and told', async () => {
  gradeAsTasksSay(service, store);
  const body = { groupId: 'group-1', task: sum('s1', [0, 1]), samples: 2 };
  const first = await call('POST', '/v1/groups', { body });
  assert.equal(first.status, 202, first.text);
  assert.equal((await call('POST', '/v1/groups', { body: { ...body, samples: 3 } })).status, 409);
  const ended = (await call('GET', '/v1/groups/group-1?wait=60')).json();
  assert.deepEqual(
    [ended.done, ended.verdict, ended.samples.map((one: { shaped: number }) => one.shaped)],
    [true, 'useful', [0, 1]],
  );
  assert.equal((await call('POST', '/v1/groups', { body })).status, 202);
  assert.equal((await call('POST', '/v1/groups', { body: { ...body, samples: 3 } })).status, 409);
  assert.equal((await call('POST', '/v1/groups/group-1/cancel')).status, 202);
  assert.equal((await call('GET', '/v1/groups/nobody')).status, 404);
  const wrong = await call('POST', '/v1/groups', { body: { ...body, samples: 0, minSamples: 'x' } });
  assert.deepEqual(
    [wrong.status, wrong.json().errors.map((one: { field: string }) => one.field)],
    [422, ['/samples', '/minSamples']],
  );
});

test('a group cannot want more rewards than samples', async () => {
  const body = { task: sum('s1', [0, 1]), samples: 2, minSamples: 3 };
  const refused = await call('POST', '/v1/groups', { body });
  assert.deepEqual(
    [refused.status, refused.json().errors],
    [422, [{ field: '/minSamples', detail: 'at most `samples`' }]],
  );
});

test('a batch streams its groups and its events, and events go on where a reader was', async () => {
  gradeAsTasksSay(service, store);
  const tasks = [sum('a', [0, 1]), sum('b', [1, 1]), sum('c', [1, 0]), sum('d', [0, 0])];
  const body = { batchId: 'batch-1', sources: [{ tasks }], rules: { groups: 2 }, group: { samples: 2 } };
  const begun = await call('POST', '/v1/batches', { body });
  assert.equal(begun.status, 202, begun.text);
  const streamed = await call('GET', '/v1/batches/batch-1/groups');
  assert.deepEqual(
    streamed.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).taskId),
    ['a', 'c'],
  );
  const whole = await call('GET', '/v1/batches/batch-1/groups?trajectories=true');
  for (const line of whole.text.trim().split('\n')) {
    const { samples } = JSON.parse(line);
    for (const { rolloutId, shaped, trajectories } of samples) {
      assert.deepEqual(
        trajectories.map((one: Trajectory) => [one.rollout_id, one.reward?.total]),
        [[rolloutId, shaped]],
      );
    }
  }
  const result = (await call('GET', '/v1/batches/batch-1?wait=60')).json();
  assert.deepEqual([result.done, result.end, result.groups], [true, 'full', ['batch-1:0.0', 'batch-1:0.2']]);
  assert.equal(result.counts.dropped.allOne, 1);
  const events = await call('GET', '/v1/batches/batch-1/events');
  assert.match(events.type ?? '', /^text\/event-stream/);
  const numbers = [...events.text.matchAll(/^id: (\d+)$/gm)].map(([, number]) => Number(number));
  assert.deepEqual(
    numbers,
    numbers.map((_, index) => index + 1),
  );
  assert.match(events.text, /event: ended\ndata: {"at":"[^"]+","why":"full"}\n\n$/);
  const last = { headers: { 'last-event-id': String(numbers.length - 1) } };
  const rest = await call('GET', '/v1/batches/batch-1/events', last);
  assert.deepEqual(
    [...rest.text.matchAll(/^id: (\d+)$/gm)].map(([, number]) => Number(number)),
    [numbers.length],
  );
  const readToTheEnd = { headers: { 'last-event-id': String(numbers.length) } };
  const over = await call('GET', '/v1/batches/batch-1/events', readToTheEnd);
  assert.deepEqual([over.status, over.text], [204, ''], 'who has all is told not to come back');
  assert.equal((await call('POST', '/v1/batches', { body: { ...body, rules: { groups: 1 } } })).status, 409);
  const drawn = {
    ...{ ...body, batchId: 'drawn', group: { samples: 1 }, sources: [{ tasks, seed: 2, skip: 5 }] },
    rules: { groups: 1, dropEqual: false, oversampling: 1 },
  };
  await call('POST', '/v1/batches', { body: drawn });
  // In the order of this seed: c, a, d, b.
  assert.equal(JSON.parse((await call('GET', '/v1/batches/drawn/groups')).text).taskId, 'a');
  const bad = { ...body, batchId: 'batch-2', sources: [{ tasks: [{ ...sum('x', []), data: {} }] }] };
  assert.equal((await call('POST', '/v1/batches', { body: bad })).status, 422);
  assert.equal((await call('GET', '/v1/batches/batch-2/events')).status, 404);
  const named = { ...body, batchId: 'named', sources: [{ file: '/etc/hosts', handler: 'math' }] };
  assert.deepEqual((await call('POST', '/v1/batches', { body: named })).json().errors, [
    {
      field: '/sources/0/file',
      detail:
        '/etc/hosts: files are named with the scope admin, or below gateway.taskFolder, which is not set',
    },
  ]);
  const own = { ...body, batchId: 'own', rules: { groups: 1, carryFrom: 'own' } };
  assert.deepEqual((await call('POST', '/v1/batches', { body: own })).json().errors, [
    { field: '/rules/carryFrom', detail: 'a batch cannot wait for its own end' },
  ]);
});

test('its metrics are by route and status, for those who may read', async () => {
  assert.equal((await call('GET', '/metrics', { token: null })).status, 401);
  const before = parseScrape((await call('GET', '/metrics', { token: tokens.dashboard as string })).text);
  for (const id of ['nobody', 'nobody-else']) await call('GET', `/v1/rollouts/${id}`);
  await call('GET', '/there/is/no/such/place');
  const after = await call('GET', '/metrics', { token: tokens.dashboard as string });
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
