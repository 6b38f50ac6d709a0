import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Agent, request } from 'undici';
import { Cluster } from '../chaos/cluster.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { PROJECT_ROOT } from '../config/tools.ts';
import { choosePort } from '../temporal-config/ports.ts';
import { type Child, Processes } from '../workers/stack/processes.ts';
import { residentMib } from './host.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { cpuMs, percentile, rounded } from './measure.ts';
import { withFolder } from './pipeline/folder.ts';

const ROLLOUTS = 2_000;
const CONNECTIONS = 64;
/** Of the batch whose results are collected: so many groups of so many, and the seconds after which it ends anyway. */
const BATCH = { groups: 64, samples: 8, deadlineSeconds: 180 };
/** The tenant whose batch goes before the rollouts that were submitted before it. */
const COLLECTOR = 'collector';
/** First port that is tried. */
const FIRST_PORT = 28_700;
/** Requests that go through before anything is measured. */
const WARM_UP = 200;

/**
 * The HTTP service: how fast it takes rollouts in, from 64 connections, while the workers have them to do; and then, with
 * most of those still in line, the results of a batch of 512 by one request.
 */
export async function benchGateway({ n, say }: BenchOptions): Promise<BenchResult> {
  return withFolder('g-', async (root) => {
    const llm = await PolicyServer.start();
    const cluster = await Cluster.start({
      ...{ root, hosts: ['a'], capacity: 512, llmUrl: llm.url, silentLlmSeconds: 60, runWorkers: 1 },
      handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
    });
    const agent = new Agent({ connections: CONNECTIONS });
    let gateway: Child | undefined;
    try {
      const port = await choosePort('gateway.port', FIRST_PORT, false);
      gateway = await startGateway(root, port);
      const { pid } = gateway;
      const url = `http://127.0.0.1:${port}`;
      const total = n ?? ROLLOUTS;
      await submit(url, agent, 'warm', Math.min(WARM_UP, total));
      const [before, memory] = [cpuMs([pid]), watchMemory(pid)];
      const started = performance.now();
      const times = await submit(url, agent, 'rollout', total);
      const seconds = (performance.now() - started) / 1000;
      const accepted_per_s = rounded(times.length / seconds);
      say(`${times.length} accepted, ${accepted_per_s}/s, p99 ${percentile(times, 99)} ms`);
      const rss_mb = await memory.peak();
      // A smaller form of the benchmark has a smaller batch.
      const groups = Math.max(1, Math.round((BATCH.groups * total) / ROLLOUTS));
      const batch = await collectBatch(url, agent, groups, say);
      return {
        bench: 'gateway',
        n: times.length,
        accepted_per_s,
        p50_ms: percentile(times, 50),
        p99_ms: percentile(times, 99),
        rss_mb,
        gateway_cpu_ms_per_call: rounded((cpuMs([pid]) - before) / times.length),
        connections: CONNECTIONS,
        ...batch,
        peers: {},
        ratios: {},
      };
    } finally {
      await agent.close();
      await gateway?.stop();
      await cluster.stop();
      await llm.close();
    }
  });
}

async function startGateway(root: string, port: number): Promise<Child> {
  const child = new Processes(path.join(root, 'gateway')).start({
    name: 'gateway',
    command: process.execPath,
    args: ['--import', import.meta.resolve('tsx'), path.join(PROJECT_ROOT, 'gateway/main.ts')],
    env: {
      ROLLOUTS_CONFIG: path.join(root, 'a.toml'),
      ROLLOUTS_GATEWAY_PORT: String(port),
      ROLLOUTS_GATEWAY_TENANTS: JSON.stringify({ [COLLECTOR]: { priority: 1 } }),
    },
    ipc: true,
  });
  await child.ready();
  return child;
}

const taskOf = (name: string) => ({
  ...{ handler: 'waiting', id: name },
  data: { name, kind: 'usual', turns: 3, sandbox: false },
});

async function post(url: string, dispatcher: Agent, body: unknown): Promise<void> {
  const answer = await request(url, {
    ...{ method: 'POST', dispatcher, body: JSON.stringify(body) },
    headers: { 'content-type': 'application/json' },
  });
  const said = await answer.body.text();
  if (answer.statusCode !== 202) throw new Error(`${answer.statusCode}: ${said}`);
}

/** Milliseconds of each call. */
async function submit(url: string, agent: Agent, prefix: string, count: number): Promise<number[]> {
  const numbers = Array.from({ length: count }, (_, at) => at).values();
  const times: number[] = [];
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async () => {
      for (const at of numbers) {
        const asked = performance.now();
        const rolloutId = `${prefix}-${at}`;
        await post(`${url}/v1/rollouts`, agent, { rolloutId, task: taskOf(rolloutId) });
        times.push(performance.now() - asked);
      }
    }),
  );
  return times;
}

/** A batch from its submission to its last group, read as one stream. */
async function collectBatch(url: string, dispatcher: Agent, groups: number, say: BenchOptions['say']) {
  const { samples, deadlineSeconds } = BATCH;
  const tasks = Array.from({ length: groups }, (_, at) => taskOf(`task-${at}`));
  const started = performance.now();
  await post(`${url}/v1/batches`, dispatcher, {
    ...{ batchId: 'batch', tenant: COLLECTOR, sources: [{ tasks }], group: { samples } },
    rules: { groups, dropEqual: false, oversampling: 1, deadlineSeconds },
  });
  const { text, requests } = await readGroups(url, dispatcher);
  const rewards = text
    .trim()
    .split('\n')
    .flatMap((line) => JSON.parse(line).samples)
    .filter(({ reward, trajectories }) => reward !== null && trajectories.length === 1);
  const seconds = rounded((performance.now() - started) / 1000);
  say(`batch: ${rewards.length} graded rollouts with trajectories in ${seconds} s by one request`);
  return {
    batch_rollouts: rewards.length,
    batch_wanted: groups * samples,
    batch_requests: 1 + requests,
    batch_s: seconds,
    batch_mb: rounded(text.length / 1e6),
  };
}

/** The groups of the batch as JSON lines, asked for again, as clients do, where it is too early or an answer breaks off. */
async function readGroups(url: string, dispatcher: Agent): Promise<{ text: string; requests: number }> {
  let text = '';
  for (let requests = 1; ; requests++) {
    const after = text.split('\n').length - 1;
    const place = `${url}/v1/batches/batch/groups?trajectories=true&after=${after}`;
    const answer = await request(place, { dispatcher, bodyTimeout: 0 });
    if (answer.statusCode === 200) {
      try {
        for await (const part of answer.body) text += part;
        return { text, requests };
      } catch {
        text = text.slice(0, text.lastIndexOf('\n') + 1);
      }
    } else {
      const said = await answer.body.text();
      if (answer.statusCode !== 503) throw new Error(`${answer.statusCode}: ${said}`);
    }
    await delay(1000);
  }
}

/** The most that a process has in memory until it is asked. */
function watchMemory(pid: number) {
  let most = residentMib(pid);
  const done = new AbortController();
  const watching = (async () => {
    while (await delay(200, true, { signal: done.signal }).catch(() => false)) {
      most = Math.max(most, residentMib(pid));
    }
  })();
  return {
    async peak() {
      done.abort();
      await watching;
      return most;
    },
  };
}
