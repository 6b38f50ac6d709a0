import { createServer } from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Cluster, type ClusterOptions } from '../chaos/cluster.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { choosePort } from '../temporal-config/ports.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { cpuMs, percentile, rounded } from './measure.ts';
import { withFolder } from './pipeline/folder.ts';

/**
 * Times that new clusters are made, others by --n: one and the same cluster is up to some percent faster or slower than
 * its like for as long as it lives, so that more rounds on it say nothing.
 */
const TIMES = 6;
/** Rounds that are measured each time, one of each kind in turns, and rollouts open at once in one. */
const ROUNDS = 4;
const OPEN = 48;
/** Rounds before: what has just been started takes more of a processor. */
const WARM_UP = 2;
/** As monitoring/prometheus.yml scrapes. */
const SCRAPE_MS = 15_000;
const FIRST_METRICS_PORT = 29_464;

/** What is switched on: nothing, not even logs; metrics (scraped) and logs, as by default; traces of all as well. */
const KINDS = ['off', 'on', 'traced'] as const;
type Kind = (typeof KINDS)[number];

/** Seconds; processor time in milliseconds, of our processes and with the Temporal server's. */
interface Cost {
  readonly seconds: number;
  readonly cpu: number;
  readonly allCpu: number;
}
type Costs = Readonly<Record<Kind, Cost>>;

/**
 * What logs, metrics and traces cost: three clusters side by side and rollouts whose stages do nothing, in turns on each.
 * Each is compared with that without any, so that what else the machine does meanwhile falls upon both; processor time of
 * our processes as well as throughput, since that is there to see on a busy machine.
 */
export async function benchInstrumentation({ n, say }: BenchOptions): Promise<BenchResult> {
  const llm = await PolicyServer.start();
  const collector = createServer((request, response) => {
    request.resume().once('end', () => response.end('{}'));
  });
  const tracesPort = await choosePort('traces', 29_318, false);
  collector.listen(tracesPort, '127.0.0.1');
  const settingsOf: Record<Kind, NonNullable<ClusterOptions['settings']>> = {
    off: { log: { level: 'silent', levels: {} } },
    on: {},
    traced: { traces: { endpoint: `http://127.0.0.1:${tracesPort}/v1/traces` } },
  };
  const measured: Costs[] = [];
  try {
    for (let time = 0; time < (n ?? TIMES); time++) {
      // Another one begins each time.
      const order = KINDS.map((_, at) => KINDS[(at + time) % KINDS.length] as Kind);
      const costs = await withFolder('i-', (root) =>
        compare(order, (kind) => ({
          ...{ root: path.join(root, kind), hosts: ['a'], capacity: OPEN, llmUrl: llm.url },
          ...{ silentLlmSeconds: 60, runWorkers: 1, settings: settingsOf[kind] },
          handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
          ...(kind === 'off' ? {} : { firstMetricsPort: metricsPort(kind) }),
        })),
      );
      measured.push(costs);
      say(`${time + 1}: ${JSON.stringify(costs)}`);
    }
  } finally {
    await llm.close();
    collector.closeAllConnections();
    collector.close();
  }
  return resultOf(measured);
}

/** What the rollouts of all rounds cost on a cluster of each kind, all new. */
async function compare(order: readonly Kind[], optionsOf: (kind: Kind) => ClusterOptions): Promise<Costs> {
  const clusters = new Map<Kind, Cluster>();
  let scraped = Promise.resolve();
  const scraping = setInterval(() => {
    scraped = scrape(clusters);
  }, SCRAPE_MS);
  try {
    for (const kind of order) clusters.set(kind, await Cluster.start(optionsOf(kind)));
    const costs = Object.fromEntries(KINDS.map((kind) => [kind, { seconds: 0, cpu: 0, allCpu: 0 }]));
    for (let index = -WARM_UP; index < ROUNDS; index++) {
      for (const kind of index % 2 ? order : order.toReversed()) {
        const cost = await round(clusters.get(kind) as Cluster, `${kind}-${index}`);
        const total = costs[kind] as Cost;
        if (index >= 0)
          costs[kind] = {
            seconds: total.seconds + cost.seconds,
            cpu: total.cpu + cost.cpu,
            allCpu: total.allCpu + cost.allCpu,
          };
      }
    }
    return costs as Costs;
  } finally {
    clearInterval(scraping);
    await scraped;
    for (const cluster of clusters.values()) await cluster.stop();
  }
}

function resultOf(measured: readonly Costs[]): BenchResult {
  const rollouts = ROUNDS * OPEN;
  const median = (of: (costs: Costs) => number) => rounded(percentile(measured.map(of), 50));
  const figures = (kind: Kind) => ({
    rollouts_per_s: median((costs) => rollouts / costs[kind].seconds),
    workers_cpu_ms_per_rollout: median((costs) => costs[kind].cpu / rollouts),
    all_cpu_ms_per_rollout: median((costs) => costs[kind].allCpu / rollouts),
  });
  const beside = (kind: 'on' | 'traced', name: string) => ({
    ...interval(`${name}_per_s`, measured, (costs) => costs.off.seconds / costs[kind].seconds),
    ...interval(`${name}_cpu`, measured, (costs) => costs.off.cpu / costs[kind].cpu),
    ...interval(`${name}_all_cpu`, measured, (costs) => costs.off.allCpu / costs[kind].allCpu),
  });
  return {
    ...{ bench: 'instrumentation', n: measured.length * rollouts, times: measured.length, ...figures('on') },
    peers: { off: figures('off'), traced: figures('traced') },
    ratios: { ...beside('on', 'off'), ...beside('traced', 'traced_off') },
  };
}

/** The mean of a ratio over the times (of logarithms), and between what it lies at 95 %, as `_low` and `_high`. */
function interval(name: string, measured: readonly Costs[], of: (costs: Costs) => number) {
  const logs = measured.map((costs) => Math.log(of(costs)));
  const degrees = logs.length - 1;
  const mean = logs.reduce((sum, value) => sum + value, 0) / logs.length;
  const variance = logs.reduce((sum, value) => sum + (value - mean) ** 2, 0) / degrees;
  const error = studentT(degrees) * Math.sqrt(variance / logs.length);
  const at = (offset: number) => rounded(Math.exp(mean + offset));
  return { [name]: at(0), [`${name}_low`]: at(-error), [`${name}_high`]: at(error) };
}

/** Within how many standard errors 95 % lie; good to 1 % from 4 degrees of freedom (Abramowitz and Stegun, 26.7.5). */
function studentT(degrees: number): number {
  const z = 1.96;
  return z + (z ** 3 + z) / (4 * degrees) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * degrees ** 2);
}

async function round({ members, client }: Cluster, name: string): Promise<Cost> {
  const pidsOf = (isTemporal: boolean) =>
    [...members.values()]
      .filter((member) => (member.name === 'temporal') === isTemporal)
      .map(({ pid }) => pid as number);
  const [ours, server] = [pidsOf(false), pidsOf(true)];
  const before = [cpuMs(ours), cpuMs(server)] as const;
  const began = performance.now();
  await Promise.all(
    Array.from({ length: OPEN }, async (_, index) => {
      const rolloutId = `${name}-${index}`;
      const data = { name: rolloutId, kind: 'usual', turns: 3, sandbox: false };
      await client.start({ rolloutId, task: { handler: 'waiting', id: rolloutId, data } });
      return client.result(rolloutId);
    }),
  );
  const seconds = (performance.now() - began) / 1000;
  const [cpu, serverCpu] = [cpuMs(ours) - before[0], cpuMs(server) - before[1]];
  return { seconds, cpu, allCpu: cpu + serverCpu };
}

async function scrape(clusters: ReadonlyMap<Kind, Cluster>): Promise<void> {
  for (const [kind, { members }] of clusters) {
    for (let at = 0; kind !== 'off' && at < members.size - 1; at++) {
      const text = await (await fetch(`http://127.0.0.1:${metricsPort(kind) + at}/metrics`)).text();
      if (!text.includes('rollouts_')) throw new Error(`port ${metricsPort(kind) + at} serves no metrics`);
    }
  }
}

function metricsPort(kind: Kind): number {
  return FIRST_METRICS_PORT + 20 * KINDS.indexOf(kind);
}
