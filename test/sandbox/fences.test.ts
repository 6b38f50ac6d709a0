import assert from 'node:assert/strict';
import test from 'node:test';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { Box, failure, hostOptions, startHost, temporaryFolder, until } from './support.ts';

const spec = SandboxSpec.parse({});
const record = (turn: number) => ({ kind: 'observed', turn, results: [], messages: [], deltaIds: [turn] });

test('only the newest holder of a sandbox can do anything in it', async (t) => {
  const { client } = await startHost(t, 'process');
  const box = await Box.create(client);
  const { sandboxId, fence } = box.info;
  await client.appendLedger(sandboxId, { fence, seq: 0, record: record(0) });
  const watch = client.watch(sandboxId, { fence });
  const { info, ledger } = await client.attach(sandboxId, { workflowRunId: 'run-1', attempt: 1 });
  assert.ok(info.fence > fence);
  assert.deepEqual(
    ledger.map((line) => line.record),
    [record(0)],
  );
  assert.deepEqual(await watch, { event: 'superseded' });
  assert.deepEqual(await client.watch(sandboxId, { fence }), { event: 'superseded' });
  await assert.rejects(client.watch(sandboxId, { fence: info.fence + 1 }), failure('FenceRefused'));
  const refused = failure('FenceRefused', new RegExp(`fence ${fence} `));
  const base64 = Buffer.from('x').toString('base64');
  await assert.rejects(box.bash('true'), refused);
  await assert.rejects(box.exec(['true']), refused);
  await assert.rejects(client.appendLedger(sandboxId, { fence, seq: 1, record: record(1) }), refused);
  await assert.rejects(client.writeFile(sandboxId, { fence, path: 'x', content: base64 }), refused);
  await assert.rejects(client.readFile(sandboxId, { fence, path: 'x' }), refused);
  await assert.rejects(client.kill(sandboxId, fence), refused);
  await assert.rejects(client.interruptShell(sandboxId, 'main', fence), refused);
  await assert.rejects(client.closeShell(sandboxId, 'main', fence), refused);
  await assert.rejects(client.watch(sandboxId, { fence: info.fence + 1 }), failure('FenceRefused'));
  await client.appendLedger(sandboxId, { fence: info.fence, seq: 1, record: record(1) });
});

test('an entry into the run stage that was given up takes nothing over, and ends nothing', async (t) => {
  const { client } = await startHost(t, 'process');
  const request = { rolloutId: 'r', workflowRunId: 'run-1', attempt: 1, spec };
  const init = await client.create(request);
  const newerInit = await client.create(request);
  await assert.rejects(client.release(init.sandboxId, { fence: init.fence }), failure('FenceRefused'));
  const attach = (entry: number) =>
    client.attach(init.sandboxId, { workflowRunId: 'run-1', attempt: 1, entry });
  const { info } = await attach(2);
  await assert.rejects(attach(1), failure('FenceRefused', /entry 1 .* entry 2 .* has begun/));
  await assert.rejects(client.create(request), failure('FenceRefused'));
  await assert.rejects(client.release(init.sandboxId, { fence: newerInit.fence }), failure('FenceRefused'));
  await client.appendLedger(info.sandboxId, { fence: info.fence, seq: 0, record: record(0) });
  const again = await attach(2);
  assert.ok(again.info.fence > info.fence, 'the same entry may come again');
  await client.release(info.sandboxId, { fence: again.info.fence });
  assert.equal((await client.stats()).sandboxes, 0);
});

test('a call goes on when its worker is gone, and runs once however often it is asked for', async (t) => {
  const { client } = await startHost(t, 'process');
  const box = await Box.create(client);
  const { sandboxId, fence, workspace } = box.info;
  const call = {
    callId: '0.0',
    command: 'echo run >> runs; touch begun; until [ -e go ]; do sleep 0.01; done; echo result',
    timeoutMs: 30_000,
  };
  const dying = new AbortController();
  const abandoned = client.shell(sandboxId, 'main', { fence, ...call }, dying.signal);
  await until(
    async () => (await box.exec(['test', '-e', `${workspace}/begun`])).exitCode === 0,
    'its beginning',
  );
  dying.abort(new Error('the worker died'));
  await assert.rejects(abandoned, /the worker died/);
  const { info } = await client.attach(sandboxId, { workflowRunId: 'run-1', attempt: 1 });
  const again = client.shell(sandboxId, 'main', { fence: info.fence, ...call });
  await client.exec(sandboxId, { fence: info.fence, argv: ['touch', `${workspace}/go`], timeoutMs: 9000 });
  assert.equal((await again).output.text, 'result\n');
  const third = await client.shell(sandboxId, 'main', { fence: info.fence, ...call });
  assert.deepEqual(third, await again);
  const runs = await client.readFile(sandboxId, { fence: info.fence, path: `${workspace}/runs` });
  assert.equal(Buffer.from(runs.content, 'base64').toString(), 'run\n');
});

test('create is idempotent per attempt, a newer attempt replaces, an older one is refused', async (t) => {
  const { client } = await startHost(t, 'process', 2);
  const create = (workflowRunId: string, attempt: number) =>
    client.create({ rolloutId: 'r', workflowRunId, attempt, spec });
  const first = await create('run-1', 1);
  const again = await create('run-1', 1);
  assert.equal(again.sandboxId, first.sandboxId);
  assert.ok(again.fence > first.fence);
  const watch = client.watch(again.sandboxId, { fence: again.fence });
  const second = await create('run-1', 2);
  assert.notEqual(second.sandboxId, first.sandboxId);
  assert.deepEqual(await watch, { event: 'superseded' });
  await assert.rejects(create('run-1', 1), failure('FenceRefused'));
  const reset = await create('run-2', 1);
  assert.notEqual(reset.sandboxId, second.sandboxId);
  await assert.rejects(create('run-1', 3), failure('FenceRefused'));
  await assert.rejects(
    client.attach(second.sandboxId, { workflowRunId: 'run-1', attempt: 2 }),
    failure('SandboxLost'),
  );
  await assert.rejects(
    client.attach(reset.sandboxId, { workflowRunId: 'run-1', attempt: 2 }),
    failure('FenceRefused'),
  );
  assert.equal((await client.stats()).sandboxes, 1);
});

test('many who create the same at once get the same sandbox', async (t) => {
  const { client } = await startHost(t, 'process');
  const request = { rolloutId: 'r', workflowRunId: 'run-1', attempt: 1, spec };
  const infos = await Promise.all(Array.from({ length: 8 }, () => client.create(request)));
  assert.equal(new Set(infos.map(({ sandboxId }) => sandboxId)).size, 1);
  assert.equal(new Set(infos.map(({ fence }) => fence)).size, 8);
});

test('a full host says so', async (t) => {
  const { client } = await startHost(t, 'process', 1);
  const box = await Box.create(client);
  await assert.rejects(Box.create(client), failure('SandboxFailed', /test-host is full: it has 1 sandboxes/));
  await box.release();
  await Box.create(client);
});

test('fences and the order of attempts outlive a restart of the host', async (t) => {
  const options = hostOptions(temporaryFolder(t), 'process');
  let running = await startSandboxHost(options);
  t.after(() => running.close());
  const signal = AbortSignal.timeout(60_000);
  const first = await running.host.create(
    { rolloutId: 'r', workflowRunId: 'run-1', attempt: 2, spec },
    signal,
  );
  await running.host.get(first.sandboxId).appendLedger(first.fence, 0, record(0));
  await running.close();
  running = await startSandboxHost(options);
  const client = new SandboxClient(running);
  t.after(() => client.close());
  const create = (attempt: number) =>
    client.create({ rolloutId: 'r', workflowRunId: 'run-1', attempt, spec });
  await assert.rejects(create(1), failure('FenceRefused'));
  await assert.rejects(create(2), failure('SandboxLost', /its ledger is not/));
  assert.ok((await create(3)).fence > first.fence);
});

for (const [reason, status] of [
  ['runDeadline', 130],
  ['stale', 137],
] as const)
  test(`abort (${reason}) tells the holder and stops what runs, but keeps the ledger`, async (t) => {
    const { client } = await startHost(t, 'process');
    const box = await Box.create(client);
    const { sandboxId, fence, workspace } = box.info;
    const watch = client.watch(sandboxId, { fence });
    const shell = box.bash('echo part; touch begun; sleep 200', 60_000);
    const program = box.exec(['sleep', '200'], undefined, 60_000);
    await until(
      async () => (await box.exec(['test', '-e', `${workspace}/begun`])).exitCode === 0,
      'its beginning',
    );
    await client.abort(sandboxId, { reason });
    assert.deepEqual(await watch, { event: 'abort', reason });
    assert.deepEqual(await client.watch(sandboxId, { fence }), { event: 'abort', reason });
    const stopped = await shell;
    assert.deepEqual(
      [stopped.timedOut, stopped.exitCode, stopped.output.text.startsWith('part\n')],
      [false, status, true],
    );
    assert.equal((await program).signal, 'SIGKILL');
    await client.appendLedger(sandboxId, { fence, seq: 0, record: record(0) });
    assert.equal((await client.readLedger(sandboxId)).length, 1);
    // What the agent made is still to be taken after a deadline; a cancelled one is dead, and takes no room.
    await until(
      async () => (await client.stats()).sandboxes === (reason === 'runDeadline' ? 1 : 0),
      'its death',
    );
  });

test('graders have room of their own, wait for it, and get a fresh sandbox each time', async (t) => {
  const { client } = await startHost(t, 'process', 1);
  await Box.create(client); // agents fill their room
  const owner = { workflowRunId: 'run-1', attempt: 1, purpose: 'grader' as const, spec };
  const first = await client.create({ ...owner, rolloutId: 'a' });
  const watch = client.watch(first.sandboxId, { fence: first.fence });
  const second = await client.create({ ...owner, rolloutId: 'b' });
  const { sandboxes, capacity, graders, graderCapacity } = await client.stats();
  assert.deepEqual([sandboxes, capacity, graders, graderCapacity], [1, 1, 2, 2]);
  const impatient = new AbortController();
  const left = client.create({ ...owner, rolloutId: 'c' }, impatient.signal);
  const waiting = client.create({ ...owner, rolloutId: 'd' });
  impatient.abort(new Error('left'));
  await assert.rejects(left, /left/);
  const anew = await client.create({ ...owner, rolloutId: 'a' });
  assert.notEqual(anew.sandboxId, first.sandboxId);
  assert.deepEqual(await watch, { event: 'superseded' });
  await client.release(second.sandboxId);
  const third = await waiting;
  for (const { sandboxId } of [anew, third]) await client.release(sandboxId);
  assert.equal((await client.stats()).graders, 0);
  assert.deepEqual(await client.abortMany({ selection: { rolloutIds: ['a', 'b'] }, reason: 'user' }), {
    rolloutIds: [],
    unheld: [],
  });
});

test('a pause is heard once by the entry it was meant for, however late that one comes', async (t) => {
  const { client } = await startHost(t, 'process');
  const { sandboxId } = (await Box.create(client)).info;
  const attach = async (entry: number) =>
    (await client.attach(sandboxId, { workflowRunId: 'run-1', attempt: 1, entry })).info.fence;
  const first = await attach(1);
  const watch = client.watch(sandboxId, { fence: first });
  await client.pause(sandboxId, { entry: 1 });
  assert.deepEqual(await watch, { event: 'pause' });
  assert.deepEqual(await client.watch(sandboxId, { fence: first }), { event: 'pause' }, 'asked anew');
  const next = client.watch(sandboxId, { fence: first, paused: true });
  await client.pause(sandboxId, { entry: 2 }); // before entry 2 has come
  const second = await attach(2);
  assert.deepEqual(await next, { event: 'superseded' });
  assert.deepEqual(await client.watch(sandboxId, { fence: second }), { event: 'pause' });
  const third = await attach(3);
  await client.pause(sandboxId, { entry: 2 }); // late, and not meant for entry 3
  const working = client.watch(sandboxId, { fence: third });
  await client.abort(sandboxId, { reason: 'user' });
  assert.deepEqual(await working, { event: 'abort', reason: 'user' });
});

test('one command stops all that a selection names, and nothing else', async (t) => {
  const { client } = await startHost(t, 'process', 8);
  const make = async (rolloutId: string, batchId: string, groupId: string, policyVersion: number) => {
    const labels = { batchId, groupId };
    const info = await client.create({ rolloutId, workflowRunId: 'run-1', attempt: 1, ...labels, spec });
    const sampled = { kind: 'sampled', turn: 0, promptLength: 1, ids: [1], logprobs: [0], policyVersion };
    const rest = { finish: 'stop', text: '', calls: [], server: 's', startedAt: 'now', ms: 0 };
    const { fence } = info;
    await client.appendLedger(info.sandboxId, { fence, seq: 0, record: { ...sampled, ...rest } });
    return info;
  };
  await make('a', 'b1', 'g1', 3);
  await make('b', 'b1', 'g2', 4);
  const c = await make('c', 'b2', 'g3', 5);
  const aborted = async (selection: Parameters<typeof client.abortMany>[0]['selection']) =>
    (await client.abortMany({ selection, reason: 'stale' })).unheld.sort();
  assert.deepEqual(await aborted({ rolloutIds: ['b', 'x'] }), ['b']);
  assert.deepEqual(await aborted({ batchId: 'b1' }), ['a', 'b']);
  assert.deepEqual(await aborted({ groupId: 'g2' }), ['b']);
  assert.deepEqual(await aborted({ belowVersion: 4 }), ['a']);
  assert.deepEqual(await aborted({ batchId: 'b1', belowVersion: 5 }), ['a', 'b']);
  const watch = client.watch(c.sandboxId, { fence: c.fence });
  const held = await client.abortMany({ selection: { belowVersion: 6 }, reason: 'stale' });
  assert.deepEqual([held.unheld.sort(), held.rolloutIds], [['a', 'b'], ['c']]);
  assert.deepEqual(await watch, { event: 'abort', reason: 'stale' });
});
