import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { Cluster } from '../chaos/cluster.ts';
import { whileAway } from '../chaos/fleet.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { PROJECT_ROOT } from '../config/tools.ts';
import { Processes } from '../workers/stack/processes.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { cpuMs, percentile, rounded, times } from './measure.ts';

/** Rollouts open at once, one figure each; more by --n. */
const OPEN = [64, 512];
/** Rollouts one after the other, for the latency. */
const SINGLES = 30;

/** A start whose answer was lost is tried again. */
const workflowIdConflictPolicy = 'USE_EXISTING';

/** Starts one and waits for its end, however busy the server is. */
type Start = (id: string) => Promise<unknown>;
/** Rollouts, and what they are measured beside: see bench/bare-workflow.ts. */
type Kind = 'ours' | 'listed' | 'bare';

/**
 * What a rollout costs around its work: stages without work, a policy that answers at once, a task without a
 * sandbox, ledger and store on. Beside it, on the same server and in turns, a bare workflow of three empty
 * activities on three queues; and, but for `--no-peers`, that one with a rollout's timer and search attributes (`listed`).
 */
export async function benchOverhead({ n, peers, say, production }: BenchOptions): Promise<BenchResult> {
  mkdirSync(path.join(PROJECT_ROOT, '.rollouts'), { recursive: true });
  const root = mkdtempSync(path.join(PROJECT_ROOT, '.rollouts', 'o-'));
  const most = n ?? Math.max(...OPEN);
  const llm = await PolicyServer.start();
  const cluster = await Cluster.start({
    ...{ root, hosts: ['a'], capacity: most, llmUrl: llm.url, silentLlmSeconds: 60, runWorkers: 1 },
    handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
    production,
  });
  const bareWorker = await startBareWorker(root, cluster.address);
  const connection = await Connection.connect({ address: cluster.address });
  const temporal = new Client({ connection });
  const members = new Map([...cluster.members].map(([name, { pid }]) => [name, pid as number]));
  const serverPid = members.get('temporal') as number;
  members.delete('temporal');
  const executeBare = (type: Kind) => async (id: string) => {
    const options = { workflowId: id, taskQueue: 'bare', args: [id], workflowIdConflictPolicy } as const;
    const handle = await whileAway(() => temporal.workflow.start(type, options));
    return whileAway(() => handle.result());
  };
  const starts: Record<Kind, Start> = {
    ours: async (id) => {
      await whileAway(() => cluster.client.start(request(id)));
      return whileAway(() => cluster.client.result(id));
    },
    listed: executeBare('listed'),
    bare: executeBare('bare'),
  };
  try {
    for (const [kind, start] of Object.entries(starts)) await all(start, `warm-${kind}`, 32);
    const latency = { ours: [] as number[], bare: [] as number[] };
    for (let round = 0; round < SINGLES; round += 10) {
      for (const kind of ['ours', 'bare'] as const) {
        latency[kind].push(...(await times(10, (i) => starts[kind](`one-${kind}-${round + i}`))));
      }
    }
    const [ours, bare] = [percentile(latency.ours, 50), percentile(latency.bare, 50)];
    say(`one at a time: p50 ${ours} ms, bare ${bare} ms`);
    const throughput: Record<string, unknown> = {};
    const ratios: Record<string, number> = { bare_latency: rounded(bare / ours) };
    let last = { per_s: 0, server_cpu_ms: 0, workers_cpu_ms: 0 };
    for (const open of n === null ? OPEN : [n]) {
      const measured = {
        ours: await load('ours', open),
        ...(peers && { listed: await load('listed', open) }),
        bare: await load('bare', open),
      };
      last = measured.ours;
      throughput[`open_${open}`] = measured;
      ratios[`bare_${open}`] = rounded(measured.ours.per_s / measured.bare.per_s);
      say(`${open} open: ${measured.ours.per_s}/s, bare ${measured.bare.per_s}/s`);
    }
    const { historyLength, historySize } = await temporal.workflow.getHandle('one-ours-0').describe();
    const bareHistory = await temporal.workflow.getHandle('one-bare-0').describe();
    return {
      bench: 'overhead',
      server: production ? 'postgresql' : 'dev',
      n: SINGLES,
      p50_ms: ours,
      p99_ms: percentile(latency.ours, 99),
      rollouts_per_s: last.per_s,
      server_cpu_ms_per_rollout: last.server_cpu_ms,
      workers_cpu_ms_per_rollout: last.workers_cpu_ms,
      events_per_rollout: historyLength,
      bytes_per_rollout: historySize ?? null,
      open: throughput,
      peers: {
        bare: { p50_ms: bare, events: bareHistory.historyLength, bytes: bareHistory.historySize ?? null },
      },
      ratios,
    };
  } finally {
    await connection.close();
    await bareWorker.stop();
    await cluster.stop();
    await llm.close();
    rmSync(root, { recursive: true, force: true });
  }

  async function load(kind: Kind, open: number) {
    const watched = kind === 'ours' ? members : new Map([['bare', bareWorker.pid]]);
    const taken = () =>
      new Map([...watched, ['server', serverPid] as const].map(([name, pid]) => [name, cpuMs([pid])]));
    const before = taken();
    const started = performance.now();
    await all(starts[kind], `load-${kind}-${open}`, open);
    const seconds = (performance.now() - started) / 1000;
    const each = new Map([...taken()].map(([name, ms]) => [name, (ms - (before.get(name) ?? 0)) / open]));
    const server = each.get('server') as number;
    each.delete('server');
    return {
      per_s: rounded(open / seconds),
      server_cpu_ms: rounded(server),
      workers_cpu_ms: rounded([...each.values()].reduce((sum, ms) => sum + ms, 0)),
      ...(kind === 'ours' && {
        cpu_ms_of: Object.fromEntries([...each].map(([name, ms]) => [name, rounded(ms)])),
      }),
    };
  }
}

async function all(start: Start, prefix: string, count: number): Promise<void> {
  const ids = Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
  // All have ended before a failure of one closes what the others use.
  const ended = await Promise.allSettled(ids.map(start));
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}

function request(rolloutId: string) {
  const data = { name: rolloutId, kind: 'usual', turns: 3, sandbox: false };
  return { rolloutId, task: { handler: 'waiting', id: rolloutId, data }, heartbeatTimeoutSeconds: 60 };
}

async function startBareWorker(root: string, address: string) {
  const child = new Processes(path.join(root, 'bare')).start({
    name: 'bare',
    command: process.execPath,
    args: ['--import', 'tsx', fileURLToPath(new URL('./bare.ts', import.meta.url)), address],
    ipc: true,
  });
  await child.ready();
  return child;
}
