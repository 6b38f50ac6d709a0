import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Client, Connection } from '@temporalio/client';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { connect } from '../../workers/connect.ts';
import { freePort, startTestServer, type TestServer } from '../support/temporal.ts';
import { makeAuthority, startTlsProxy, type TlsProxy } from '../support/tls-proxy.ts';
import { until } from '../support/until.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'tls-'));
const profiles = path.join(folder, 'temporal.toml');
const cleanUp: (() => unknown)[] = [() => rmSync(folder, { recursive: true })];
let server: TestServer;
let proxy: TlsProxy;

before(async () => {
  server = await startTestServer();
  cleanUp.push(() => server.stop());
  const [ours, theirs] = [await makeAuthority(folder, 'ours'), await makeAuthority(folder, 'theirs')];
  proxy = await startTlsProxy(server.address, await ours.sign('server'), ours.certificate);
  cleanUp.push(() => proxy.close());
  const profile = (name: string, ca: string, client?: { certificate: string; key: string }) => [
    `[profile.${name}]`,
    `address = "${proxy.address}"`,
    `api_key = "the-key-of-${name}"`,
    `[profile.${name}.tls]`,
    `server_ca_cert_path = "${ca}"`,
    ...(client ? [`client_cert_path = "${client.certificate}"`, `client_key_path = "${client.key}"`] : []),
  ];
  const lines = [
    ...profile('production', ours.certificate, await ours.sign('worker')),
    ...profile('stranger', ours.certificate, await theirs.sign('worker')),
    ...profile('nobody', ours.certificate),
    ...profile('distrustful', theirs.certificate, await ours.sign('distrustful')),
  ];
  writeFileSync(profiles, lines.join('\n'));
});
after(async () => {
  for (const step of cleanUp.reverse()) await step();
});

/** A process of the product that knows Temporal by its profile alone. */
async function start(entry: string, args: string[], more: Record<string, string> = {}): Promise<void> {
  const child: ChildProcess = spawn(process.execPath, ['--import', 'tsx', entry, ...args], {
    cwd: PROJECT_ROOT,
    env: {
      ...process.env,
      TEMPORAL_CONFIG_FILE: profiles,
      TEMPORAL_PROFILE: 'production',
      ROLLOUTS_STATE_FOLDER: folder,
      ROLLOUTS_LOG_LEVEL: 'warn',
      ...more,
    },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const ended = once(child, 'exit');
  cleanUp.push(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const [message] = await Promise.race([once(child, 'message'), ended]);
  assert.ok((message as { ready?: boolean })?.ready, `${entry} ended with ${message}`);
}

test('workers and the HTTP service reach a server behind mTLS by a profile, with its API key', async () => {
  const port = await freePort();
  await Promise.all([
    start('workers/main.ts', ['workflow']),
    start('gateway/main.ts', [], { ROLLOUTS_GATEWAY_PORT: String(port) }),
  ]);
  const begun = await fetch(`http://127.0.0.1:${port}/v1/rollouts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      rolloutId: 'over-tls',
      task: { handler: 'math', id: '1', data: { question: '1 + 1?', answer: '#### 2' } },
    }),
  });
  assert.equal(begun.status, 202, await begun.clone().text());
  const connection = await Connection.connect({ address: server.address });
  const rollout = new Client({ connection }).workflow.getHandle('over-tls');
  // The worker has decided on it.
  await until(
    async () =>
      ((await rollout.fetchHistory()).events ?? []).some((e) => e.activityTaskScheduledEventAttributes),
    'the workflow worker took the rollout',
  );
  await connection.close();
  for (const method of ['StartWorkflowExecution', 'RespondWorkflowTaskCompleted']) {
    const found = proxy.calls.find(({ call }) => call.endsWith(`/${method}`));
    assert.deepEqual(
      [found?.client, found?.authorization],
      ['worker', 'Bearer the-key-of-production'],
      method,
    );
  }
});

test('a wrong certificate, none, or a server that is not trusted is said with the address and what decides', async () => {
  const environment = { ...process.env };
  const tries: Promise<void>[] = [];
  try {
    process.env.TEMPORAL_CONFIG_FILE = profiles;
    for (const [name, certificate] of [
      ['stranger', 'with'],
      ['nobody', 'without'],
      ['distrustful', 'with'],
    ]) {
      process.env.TEMPORAL_PROFILE = name;
      const config = loadConfig({ env: {} });
      // Both read the profile before they wait for anything.
      for (const connecting of [connect(config), RolloutClient.connect(config)]) {
        const rejected = assert.rejects(connecting, (error: Error) => {
          const how = `at ${proxy.address} with TLS, ${certificate} a client certificate, with an API key: `;
          assert.ok(error.message.includes(`no Temporal server answers ${how}`), error.message);
          assert.match(error.message, /TEMPORAL_TLS_\* and TEMPORAL_API_KEY/);
          return true;
        });
        tries.push(rejected);
      }
    }
  } finally {
    process.env = environment;
  }
  await Promise.all(tries);
  assert.ok(!proxy.calls.some(({ authorization }) => /stranger|nobody|distrustful/.test(authorization)));
});
