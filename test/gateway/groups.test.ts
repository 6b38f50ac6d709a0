import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { type Caller, callerOf } from './caller.ts';
import { gradeAsTasksSay } from './graded.ts';
import { served } from './served.ts';

const all = served();
const { service, store } = all;
const caller = callerOf(all);
const call: Caller['call'] = async (...said) => (await caller()).call(...said);

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
