import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Agent, request } from 'undici';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { sandboxHostAddress } from '../../workers/sandbox-host/address.ts';
import type { SandboxHostOptions } from '../../workers/sandbox-host/options.ts';
import { processIds, processInfo, startedWith } from '../../workers/sandbox-host/processes.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import {
  BACKENDS,
  Box,
  failure,
  hostOptions,
  startHost,
  startHostProcess,
  temporaryFolder,
  until,
} from './support.ts';

/** Processes that were started with this in their environment. */
function marked(entry: string): number[] {
  return processIds().filter((pid) => startedWith(pid, entry) && processInfo(pid)?.zombie === false);
}

for (const backend of BACKENDS) {
  test(`${backend}: when the host is killed, all that ran in its sandboxes dies with it`, async (t) => {
    const stateDir = temporaryFolder(t);
    const { child, client } = await startHostProcess(t, stateDir, backend);
    const mark = `ROLLOUT_TEST=${stateDir}`;
    const spec = { environment: { ROLLOUT_TEST: stateDir } };
    const [box, other] = [await Box.create(client, spec), await Box.create(client, spec)];
    const { sandboxId, fence } = box.info;
    await box.bash('(setsid nohup sleep 300 >/dev/null 2>&1 &); sleep 300 & trap "" HUP TERM INT');
    await client.appendLedger(sandboxId, {
      fence,
      seq: 0,
      record: { kind: 'observed', turn: 0, results: [], messages: [], deltaIds: [] },
    });
    const running = other.exec(['sleep', '300']);
    running.catch(() => {}); // awaited below
    await until(() => marked(mark).length >= 4, 'the sleepers');
    const watch = client.watch(sandboxId, { fence });
    watch.catch(() => {}); // awaited below
    child.kill('SIGKILL');
    await assert.rejects(watch, failure('HostUnreachable'));
    await assert.rejects(running, failure('HostUnreachable'));
    await until(() => marked(mark).length === 0, 'the end of everything');
    await assert.rejects(box.bash('true'), failure('HostUnreachable'));

    assert.equal(readdirSync(path.join(stateDir, 'host', 'sandboxes')).length, 2);
    const next = await startSandboxHost(hostOptions(stateDir, backend));
    t.after(() => next.close());
    assert.deepEqual(readdirSync(path.join(stateDir, 'host', 'sandboxes')), []);
    await assert.rejects(
      client.attach(sandboxId, { workflowRunId: 'run-1', attempt: 1 }),
      failure('SandboxLost', /of rollout-\d+ ended with an earlier sandbox host$/),
    );
    const ledgers = readdirSync(path.join(stateDir, 'host', 'ledgers'), { recursive: true }) as string[];
    assert.equal(ledgers.filter((name) => name.endsWith('run-1.1.jsonl')).length, 2);
  });

  test(`${backend}: a sandbox that dies by itself is lost to its holder at once`, async (t) => {
    const { client, stateDir } = await startHost(t, backend);
    const box = await Box.create(client, { environment: { ROLLOUT_TEST: stateDir } });
    const { sandboxId, fence } = box.info;
    const watch = client.watch(sandboxId, { fence });
    const running = box.bash('sleep 300');
    running.catch(() => {}); // awaited below
    const folder = path.join(stateDir, 'host', 'sandboxes', sandboxId);
    const { pid } = JSON.parse(readFileSync(path.join(folder, 'processes.json'), 'utf8'))[0] as {
      pid: number;
    };
    process.kill(pid, 'SIGKILL');
    const event = await watch;
    assert.equal(event.event, 'lost');
    if (backend === 'bubblewrap') await assert.rejects(running, failure('SandboxLost'));
    await assert.rejects(box.bash('true'), failure('SandboxLost'));
    await assert.rejects(
      client.attach(sandboxId, { workflowRunId: 'run-1', attempt: 1 }),
      failure('SandboxLost'),
    );
    assert.equal((await box.release()).released, true);
    assert.deepEqual(marked(`ROLLOUT_TEST=${stateDir}`), []);
    assert.equal((await client.stats()).sandboxes, 0);
  });
}

test('a graceful stop ends sandboxes, socket and waiting calls', async (t) => {
  const { client, running, stateDir } = await startHost(t);
  const box = await Box.create(client, { environment: { ROLLOUT_TEST: stateDir } });
  const watch = client.watch(box.info.sandboxId, { fence: box.info.fence });
  const call = box.bash('sleep 300');
  call.catch(() => {}); // awaited below
  await until(() => marked(`ROLLOUT_TEST=${stateDir}`).length >= 2, 'the sleeper');
  await running.close();
  assert.deepEqual(await watch.catch((error: unknown) => (error as Error).name), {
    event: 'lost',
    message: 'the sandbox host stops',
  });
  await assert.rejects(call, failure('SandboxLost'));
  assert.deepEqual(marked(`ROLLOUT_TEST=${stateDir}`), []);
  await assert.rejects(client.stats(), failure('HostUnreachable'));
  assert.deepEqual(readdirSync(path.join(stateDir, 'host')).includes('socket'), false);
});

test('a connection may be silent for as long as a worker stands still', async (t) => {
  let server: { readonly headersTimeout: number; readonly requestTimeout: number } | undefined;
  const observe: SandboxHostOptions['observe'] = (made) => {
    server = made.server;
  };
  const host = await startSandboxHost({ ...hostOptions(temporaryFolder(t), 'process'), observe });
  t.after(() => host.close());
  // Node ends one without a whole request after these; it looks every 30 s, so that no test waits for it.
  assert.deepEqual([server?.headersTimeout, server?.requestTimeout], [0, 0]);
});

test('one folder has one host', async (t) => {
  const { stateDir } = await startHost(t, 'process');
  await assert.rejects(
    startSandboxHost(hostOptions(stateDir, 'process')),
    failure('SandboxUnavailable', /already holds .*set another stateDir/),
  );
});

test('whatever a model called its arguments can be recorded', async (t) => {
  const { client } = await startHost(t, 'process');
  const { sandboxId, fence } = (await Box.create(client)).info;
  const names = JSON.parse('{"__proto__": {"x": 1}, "constructor": {"prototype": 2}}');
  const call = { callId: '0.0', tool: 'bash', arguments: names, status: 'wrongArguments' };
  const record = {
    ...{
      kind: 'sampled',
      turn: 0,
      promptLength: 1,
      ids: [1],
      logprobs: [-1],
      policyVersion: 0,
      finish: 'stop',
    },
    ...{ text: 'x', calls: [call], server: 's', startedAt: '2026-01-01T00:00:00.000Z', ms: 1 },
  };
  await client.appendLedger(sandboxId, { fence, seq: 0, record });
  await client.appendLedger(sandboxId, { fence, seq: 0, record });
  const [line] = await client.readLedger(sandboxId);
  assert.equal(line?.record.kind === 'sampled' && line.record.text, 'x');
});

test('socket and token are for their user alone, and every call needs the token', async (t) => {
  const { running, stateDir } = await startHost(t, 'process');
  const mode = (name: string) => (statSync(path.join(stateDir, 'host', name)).mode & 0o777).toString(8);
  assert.deepEqual([mode('.'), mode('token'), mode('socket')], ['700', '600', '600']);
  const dispatcher = new Agent({ connect: { socketPath: running.socketPath } });
  t.after(() => dispatcher.destroy());
  for (const headers of [{}, { authorization: 'Bearer ' }, { authorization: `Bearer ${'0'.repeat(64)}` }]) {
    const answer = await request('http://host/v1/stats', { dispatcher, headers });
    assert.equal(answer.statusCode, 401);
    await answer.body.dump();
  }
  const wrong = new SandboxClient({ socketPath: running.socketPath, token: 'wrong' });
  t.after(() => wrong.close());
  await assert.rejects(wrong.stats(), failure('HostUnreachable', /token/));
  const right = new SandboxClient(sandboxHostAddress(stateDir));
  t.after(() => right.close());
  assert.equal((await right.stats()).host, 'test-host');
});

test('bad input is refused with the field that is wrong', async (t) => {
  const { client } = await startHost(t, 'process');
  const box = await Box.create(client);
  const { sandboxId, fence } = box.info;
  const spec = SandboxSpec.parse({});
  await assert.rejects(
    client.create({ rolloutId: '../x', workflowRunId: 'w', attempt: 1, spec }),
    failure('InvalidRequest', /rolloutId/),
  );
  await assert.rejects(
    client.create({ rolloutId: 'x', workflowRunId: '../w', attempt: 1, spec }),
    failure('InvalidRequest', /workflowRunId/),
  );
  assert.equal(SandboxSpec.safeParse({ environment: { 'A=B': '' } }).success, false);
  await assert.rejects(
    client.exec(sandboxId, { fence, argv: [], timeoutMs: 1 }),
    failure('InvalidRequest', /argv/),
  );
  const exec = (argv: string[], rest: object = {}) =>
    client.exec(sandboxId, { fence, argv, timeoutMs: 10_000, ...rest });
  await assert.rejects(exec(['echo', 'a\0b']), failure('InvalidRequest', /zero byte\n.*argv\[1\]/));
  await assert.rejects(exec(['true'], { cwd: '/\0' }), failure('InvalidRequest', /zero byte\n.*cwd/));
  await assert.rejects(
    exec(['true'], { environment: { A: '\0' } }),
    failure('InvalidRequest', /zero.*\n.*\.A/),
  );
  for (const name of ['', 'A=B']) {
    const refused = failure('InvalidRequest', /the name of a variable/);
    await assert.rejects(exec(['true'], { environment: { [name]: '' } }), refused);
  }
  assert.equal((await exec(['--help'])).exitCode, 127, 'a name of a program, no option of what starts it');
  for (const asked of [{ exclude: ['\0'] }, { folder: '\0' }]) {
    const refused = failure('InvalidRequest', new RegExp(`zero byte\n.*${Object.keys(asked)}`));
    await assert.rejects(client.diff(sandboxId, { fence, ...asked }), refused);
  }
  await assert.rejects(
    client.snapshot(sandboxId, { fence, file: '/\0' }),
    failure('InvalidRequest', /zero byte\n.*file/),
  );
  await assert.rejects(
    client.writeFile(sandboxId, { fence, path: '/workspace/\0', content: '' }),
    failure('InvalidRequest', /zero byte\n.*path/),
  );
  const most = 131_071;
  assert.equal((await exec(['echo', 'é'.repeat((most - 1) / 2)])).stdout.totalBytes, most);
  await assert.rejects(
    exec(['echo', 'x'.repeat(most + 1)]),
    failure('InvalidRequest', /131071.*file\n.*argv\[1\]/),
  );
  assert.equal((await exec(['true', ...Array(8).fill('x'.repeat(most))])).exitCode, 0);
  await assert.rejects(
    exec(['true', ...Array(9).fill('x'.repeat(most))]),
    failure('InvalidRequest', /together/),
  );
  await assert.rejects(
    client.shell(sandboxId, '..%2Fx', { fence, callId: 'c', command: '', timeoutMs: 1 }),
    failure('InvalidRequest', /name/),
  );
  await assert.rejects(
    client.exec('x'.repeat(101), { fence, argv: ['true'], timeoutMs: 1 }),
    failure('InvalidRequest'),
  );
  await assert.rejects(
    client.exec('nowhere', { fence, argv: ['true'], timeoutMs: 1 }),
    failure('SandboxLost'),
  );
});

test('a socket path that the kernel would cut is refused with the setting to change', async (t) => {
  const stateDir = path.join(temporaryFolder(t), 'x'.repeat(100));
  await assert.rejects(
    startSandboxHost(hostOptions(stateDir, 'process')),
    failure(
      'SandboxUnavailable',
      /the kernel allows 107: set state\.folder \(--state-dir\) to a shorter path/,
    ),
  );
});

test('a backend that does not work says why', async (t) => {
  const options = { ...hostOptions(temporaryFolder(t)), bwrapPath: '/nonexistent/bwrap' };
  await assert.rejects(startSandboxHost(options), failure('SandboxUnavailable', /nonexistent\/bwrap/));
});
