import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { makeApp } from '../../gateway/app.ts';
import { isOpen } from '../support/open-files.ts';
import { until } from '../support/until.ts';
import { gate } from '../workflows/kept.ts';
import { placement, report, untilCancelled, usual } from '../workflows/scripted.ts';
import { type Caller, callerOf } from './caller.ts';
import { served } from './served.ts';

const all = served();
const { service, store } = all;
const caller = callerOf(all);
const call: Caller['call'] = async (...said) => (await caller()).call(...said);

const task = { handler: 'math', id: 'task-1', data: { question: 'What is 1 + 1?', answer: '#### 2' } };

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
  const { url, tokens } = await caller();
  const headers = { authorization: `Bearer ${tokens.trainer}`, accept: 'application/json' };
  const place = `${url}/v1/rollouts/long/trajectory`;
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
