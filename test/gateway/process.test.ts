import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { NativeConnection, Worker } from '@temporalio/worker';
import { POOL_QUEUE } from '../../contracts/queues.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { FACTS } from '../support/pool.ts';
import { gate } from '../workflows/kept.ts';
import { report, untilCancelled, usual } from '../workflows/scripted.ts';
import { served } from './served.ts';

const cleanUp: (() => Promise<void>)[] = [];
// Before the service's own: a worker ends only while its server is there.
after(async () => {
  for (const stop of cleanUp) await stop();
});
const { service, gateway, store } = served();
const recorded = Trajectory.parse(
  JSON.parse(readFileSync(new URL('../fixtures/trajectories/two-turns.jsonl', import.meta.url), 'utf8')),
);
let url: string | undefined;

/** Made at the first call, when the service stands. */
async function address(): Promise<string> {
  if (url === undefined) {
    await startPoolWorker();
    ({ url } = await gateway());
  }
  return url;
}

/** Takes every server for one that serves the same. */
async function startPoolWorker(): Promise<void> {
  const connection = await NativeConnection.connect({ address: service.address });
  const worker = await Worker.create({
    connection,
    taskQueue: POOL_QUEUE,
    activities: { probe: async () => FACTS },
  });
  const running = worker.run();
  cleanUp.push(async () => {
    worker.shutdown();
    await running;
    await connection.close();
  });
}

// biome-ignore lint/suspicious/noExplicitAny: answers are looked at field by field
type Answer = { status: number; body: any };

async function call(method: string, place: string, body?: unknown, signal?: AbortSignal): Promise<Answer> {
  const response = await fetch(`${await address()}${place}`, {
    method,
    ...(body === undefined
      ? {}
      : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    ...(signal ? { signal } : {}),
  });
  return { status: response.status, body: await response.json() };
}

const instance = {
  data_source: 'math',
  instance_id: 'sum',
  trajectory_id: 4,
  question: '1 + 1?',
  answer: '#### 2',
};
const job = (more: object = {}) => ({ instance, sampling_params: { temperature: 0.5 }, ...more });

test('it is stopped until it is started, and needs LLM servers', async () => {
  assert.equal((await call('GET', '/status')).status, 503);
  assert.equal((await call('POST', '/process', job())).status, 503);
  assert.deepEqual(await call('POST', '/start'), {
    status: 200,
    body: { status: 'Server started successfully' },
  });
  const again = await call('POST', '/start');
  assert.deepEqual([again.status, again.body.detail], [400, 'Server is already running']);
  assert.match((await call('POST', '/process', job())).body.detail, /No LLM server addresses configured/);
  const address = 'http://127.0.0.1:9';
  const added = await call('POST', '/add_llm_server', { address });
  assert.deepEqual(added, { status: 200, body: { status: `Added LLM server address: ${address}` } });
  const [member] = (await service.client.pool.state()).members;
  assert.deepEqual(member?.server, { url: address, dialect: 'prorl', policyVersion: 0 });
  assert.deepEqual((await call('GET', '/status')).body, {
    init_queue: 0,
    run_queue: 0,
    eval_queue: 0,
    active_init: 0,
    active_run: 0,
    active_eval: 0,
    total: 0,
  });
});

test('a job is answered when its rollout has ended, with the tokens of its trajectory', async () => {
  service.workers.script.evaluate = async (input) => {
    const record = await usual.evaluate(input);
    const { rolloutId, workflowRunId, attempt } = record;
    const trajectory = await store.putTrajectory({ rolloutId, workflowRunId, attempt }, [recorded]);
    return { ...record, reward: { total: 1, parts: {} }, trajectory };
  };
  const { status, body } = await call('POST', '/process', job());
  assert.equal(status, 200, JSON.stringify(body));
  assert.deepEqual(
    [body.instance_id, body.trajectory_id, body.resolved, body.critical_error],
    ['sum', 4, true, null],
  );
  assert.deepEqual(
    body.messages.at(-1).token_ids,
    recorded.output_ids.slice(...(recorded.turns[1]?.sampled ?? [])),
  );
  assert.deepEqual(
    body.tools.map((tool: { function: { name: string } }) => tool.function.name),
    ['bash', 'ipython'],
  );
});

test('who disconnects and asks again with the same job_id gets the same rollout', async () => {
  const begun = gate();
  const goOn = gate();
  service.workers.script.run = async () => {
    begun.open();
    await goOn.passed;
    return report;
  };
  const hung = new AbortController();
  const first = call('POST', '/process', job({ job_id: 'job 1' }), hung.signal);
  await begun.passed;
  hung.abort();
  await assert.rejects(first);
  const second = call('POST', '/process', job({ job_id: 'job 1' }));
  goOn.open();
  const { status, body } = await second;
  assert.deepEqual([status, body.success, body.reward], [200, true, 0.5]);
  assert.equal(service.workers.calls.filter((name) => name === 'run').length, 1);
  assert.equal((await call('POST', '/process', job({ job_id: 'job 1' }))).body.rollout_id, body.rollout_id);
  const other = { job_id: 'job 1', sampling_params: { temperature: 0.9 } };
  assert.equal((await call('POST', '/process', job(other))).status, 409);
});

test('a job that nobody can ask for again ends with its caller; others end by cancel', async () => {
  let begun = gate();
  service.workers.script.init = () => {
    begun.open();
    return untilCancelled();
  };
  const ended = gate();
  service.workers.script.conclude = async (input) => {
    if (input.result.cancel?.reason === 'superseded') ended.open();
    return usual.conclude(input);
  };
  const hung = new AbortController();
  const lost = call('POST', '/process', job(), hung.signal);
  await begun.passed;
  hung.abort();
  await assert.rejects(lost);
  await ended.passed;

  begun = gate();
  const cancelled = call('POST', '/process', job({ job_id: 'two' }));
  await begun.passed;
  assert.equal((await call('POST', '/cancel', { job_id: 'two' })).status, 200);
  const { body } = await cancelled;
  assert.deepEqual([body.critical_error, body.error, body.filter], ['init', 'cancelled: user', true]);
  assert.equal((await call('POST', '/cancel', { job_id: 'nobody', of: 'its own' })).status, 404);
});

test('bad fields are named', async () => {
  const wrong = await call('POST', '/process', job({ sampling_params: { temperature: -1 } }));
  assert.deepEqual([wrong.status, wrong.body.errors[0].field], [422, '/sampling_params/temperature']);
  const source = await call('POST', '/process', { instance: { ...instance, data_source: 'nope' } });
  assert.deepEqual([source.status, /no handler is called "nope"/.test(source.body.detail)], [422, true]);
  assert.equal(source.body.errors[0].field, '/instance/data_source');
  assert.equal((await call('POST', '/process', { sampling_params: {} })).status, 422);
  assert.equal((await call('POST', '/add_llm_server', { address: 'nowhere' })).status, 422);
});

test('stop ends every job; another gateway knows that it is stopped, and the next weights have another version', async () => {
  const begun = gate();
  service.workers.script.init = () => {
    begun.open();
    return untilCancelled();
  };
  const open = call('POST', '/process', job({ job_id: 'three' }));
  await begun.passed;
  assert.equal((await call('POST', '/stop')).status, 200);
  const { body } = await open;
  assert.deepEqual([body.critical_error, body.timing.timeout_triggered], ['timeout', true]);
  ({ url } = await gateway());
  assert.equal((await call('POST', '/stop')).status, 503);
  assert.equal((await call('POST', '/clear_llm_server')).status, 200);
  assert.equal((await call('POST', '/start')).status, 200);
  assert.equal((await call('POST', '/process', job())).status, 503);
  await call('POST', '/add_llm_server', { address: 'http://127.0.0.1:10' });
  const active = (await service.client.pool.state()).members.filter(({ state }) => state === 'active');
  assert.deepEqual(
    active.map(({ server }) => [server.url, server.policyVersion]),
    [['http://127.0.0.1:10', 1]],
  );
});
