import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { pino } from 'pino';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { PolicyServer } from '../../chaos/policy-server.ts';
import { decode, END, encode } from '../../chaos/tokens.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { makeApp } from '../../gateway/app.ts';
import { registerSearchAttributes } from '../../temporal-config/search-attributes.ts';
import { seedPool } from '../../workers/pool/seed.ts';
import { makeWorkers, ROLES } from '../../workers/roles.ts';
import { startTracing } from '../../workers/tracing/tracing.ts';
import { workflowBundle } from '../../workers/workflow-bundle.ts';
import { startHost } from '../sandbox/support.ts';
import { startTestServer } from '../support/temporal.ts';
import { until } from '../support/until.ts';
import { attribute, type ReceivedSpan, startReceiver } from './receiver.ts';

const HANDLER = fileURLToPath(new URL('../../examples/handlers/count-lines.ts', import.meta.url));
const HISTORIES = fileURLToPath(new URL('../histories/', import.meta.url));
const REPLIES = [
  '```bash\nwc -l < notes.txt; exit_code() { return 3; }; exit_code\n```',
  'There are 2 lines.',
];

Runtime.install({ logger: new DefaultLogger('ERROR'), shutdownSignals: [] });

/*
 * A rollout of a real service, from the HTTP request to the reward, with a receiver of its spans. Run by
 * `npm run test:traces`.
 */

test('one trace from the trainer’s request through the workflow, its stages, turns, LLM and tool calls', async (t) => {
  const receiver = await startReceiver();
  const server = await startTestServer();
  const llm = await PolicyServer.start((promptIds) => {
    const text = decode(promptIds);
    // The prompt may show worked examples before the question.
    const asked = text.slice(text.lastIndexOf('<|im_start|>user\n'));
    const turn = asked.split('<|im_start|>assistant\n').length - 2;
    const ids = [...encode(REPLIES[turn] ?? ''), END];
    return { task: { name: 'lines' }, turn, ids, probabilities: ids.map(() => 0.5) };
  });
  const { stateDir } = await startHost(t);
  const config = loadConfig({
    env: {},
    flags: {
      temporal: { address: server.address },
      state: { folder: stateDir },
      sandbox: { host: 'test-host' },
      workers: { handlers: [HANDLER] },
      traces: { endpoint: receiver.url },
    },
  });
  const connection = await Connection.connect({ address: server.address });
  await registerSearchAttributes(connection, 'default');
  const tracing = await startTracing(config, 'worker');
  assert.ok(tracing);
  const { workers, close } = await makeWorkers(config, ROLES, { tracing });
  const running = Promise.all(workers.map((worker) => worker.run()));
  const client = await RolloutClient.connect(config, tracing.client);
  const app = await makeApp({
    config,
    client,
    store: new TrajectoryStore(config.derived.storeFolder),
    handlers: await loadHandlers({ handlers: [HANDLER] }, { python: () => loadTools().python }),
    tokens: undefined,
    traced: true,
    log: pino({ level: 'silent' }),
  });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= stopAll();
    return stopped;
  };
  const stopAll = async () => {
    await app.close();
    await client.close();
    for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    await running;
    await close();
    await connection.close();
  };
  t.after(async () => {
    await llm.close();
    await server.stop();
    await receiver.close();
  });
  try {
    await seedPool({
      client: new Client({ connection }),
      input: { pool: config.llm.pool, leaseSeconds: config.llm.leaseSeconds },
      servers: [{ url: llm.url, dialect: 'llama.cpp', policyVersion: 4 }],
      signal: t.signal,
      report: () => {},
    });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const { port } = app.server.address() as AddressInfo;
    const traceId = '0af7651916cd43dd8448eb211c80319c';
    const task = { handler: 'count-lines', id: 'two', data: { text: 'one\ntwo\n' } };
    const begun = await fetch(`http://127.0.0.1:${port}/v1/rollouts`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        traceparent: `00-${traceId}-b7ad6b7169203331-01`,
      },
      body: JSON.stringify({ rolloutId: 'traced', task }),
    });
    assert.equal(begun.status, 202, await begun.text());
    const { reward, outcome } = await client.result('traced');
    assert.deepEqual([outcome, reward?.total], ['completed', 1]);
    await stop();
    await tracing.close();
    const named = (name: string) => receiver.spans.filter((span) => span.name === name);
    // The workflow's own span comes when the workflow is over.
    await until(() => named('RunWorkflow:rollout').length > 0, 'the workflow’s span');
    const spans = receiver.spans.filter((span) => span.traceId === traceId);
    const byId = new Map(spans.map((span) => [span.spanId, span]));
    const one = (name: string, parent?: ReceivedSpan): ReceivedSpan => {
      const found = spans.filter(
        (span) => span.name === name && (!parent || span.parentSpanId === parent.spanId),
      );
      assert.equal(
        found.length,
        1,
        `${name}: ${found.length} of ${spans.map((span) => span.name).join(', ')}`,
      );
      return found[0] as ReceivedSpan;
    };
    /** Names from a span up to the trainer's own. */
    const pathOf = (span: ReceivedSpan): string[] => {
      const above = byId.get(span.parentSpanId ?? '');
      return [span.name, ...(above ? pathOf(above) : [span.parentSpanId ?? 'nothing'])];
    };
    const first = one('turn 0');
    assert.deepEqual(pathOf(one('tool bash')), [
      ...['tool bash', 'turn 0', 'RunActivity:run', 'StartActivity:run'],
      ...['RunWorkflow:rollout', 'StartWorkflow:rollout', 'POST /v1/rollouts', 'b7ad6b7169203331'],
    ]);
    for (const stage of ['init', 'run', 'evaluate']) {
      const place = pathOf(one(`RunActivity:${stage}`));
      assert.deepEqual(place.slice(1, 3), [`StartActivity:${stage}`, 'RunWorkflow:rollout']);
    }
    const asked = one('llm', first);
    assert.equal(attribute(asked, 'server.address'), llm.url);
    assert.equal(attribute(asked, 'gen_ai.usage.output_tokens'), encode(REPLIES[0] ?? '').length + 1);
    assert.equal(attribute(asked, 'policy.version'), 4);
    assert.equal(attribute(one('llm', one('turn 1')), 'gen_ai.usage.output_tokens'), 19);
    assert.equal(attribute(one('tool bash'), 'tool.exit_code'), 3);
    assert.deepEqual(
      [attribute(first, 'rollout.id'), attribute(first, 'rollout.attempt'), attribute(first, 'rollout.kind')],
      ['traced', 1, 'count-lines'],
    );
    const within = (inner: ReceivedSpan, outer: ReceivedSpan) =>
      BigInt(inner.startTimeUnixNano) >= BigInt(outer.startTimeUnixNano) - 2_000_000n &&
      BigInt(inner.endTimeUnixNano) <= BigInt(outer.endTimeUnixNano) + 2_000_000n;
    for (const inner of [asked, one('tool bash')]) assert.ok(within(inner, first), inner.name);
    assert.ok(within(first, one('RunActivity:run')));
    assert.ok(!JSON.stringify(receiver.spans).includes('notes.txt'), 'nothing of what was said');
    assert.deepEqual(named('HandleQuery:state'), [], 'none for each look at the pool');
  } catch (error) {
    await stop();
    throw error;
  }
});

test('kept histories replay where workflows are traced', async () => {
  const bundle = await workflowBundle(new DefaultLogger('ERROR'), {}, { traced: true });
  const sinks = { exporter: { export: { fn: () => {} } } };
  const files = readdirSync(HISTORIES, { recursive: true, encoding: 'utf8' }).filter((name) =>
    // Of each version one that ran through, and some with signals and retries.
    /(completed|cancel-run|pause-run|stage-retry)\.json$/.test(name),
  );
  assert.ok(files.length >= 4, files.join());
  for (const file of files) {
    const history = JSON.parse(readFileSync(path.join(HISTORIES, file), 'utf8'));
    await Worker.runReplayHistory({ workflowBundle: bundle, sinks }, history, path.basename(file, '.json'));
  }
});
