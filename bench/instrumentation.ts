import { createServer } from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Cluster, type ClusterOptions } from '../chaos/cluster.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { choosePort } from '../temporal-config/ports.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { cpuMs, percentile, rounded } from './measure.ts';
import { withFolder } from './pipeline/folder.ts';

/** Rounds that are measured, one of each kind in turns, and rollouts open at once in one; other rounds by --n. */
const ROUNDS = 6;
const OPEN = 48;
/** Rounds before: what has just been started takes more of a processor. */
const WARM_UP = 2;
/** Milliseconds after which no further round is begun. */
const LAST_ROUND_AFTER_MS = 480_000;
/** As monitoring/prometheus.yml scrapes. */
const SCRAPE_MS = 15_000;
const FIRST_METRICS_PORT = 29_464;

/** What is switched on: nothing, not even logs; metrics (scraped) and logs, as by default; traces of all as well. */
const KINDS = ['off', 'on', 'traced'] as const;
type Kind = (typeof KINDS)[number];

/** Rollouts a second; processor time of one in milliseconds, of our processes and with the Temporal server's. */
interface Round {
  readonly perSecond: number;
  readonly cpu: number;
  readonly allCpu: number;
}

/**
 * What logs, metrics and traces cost: three clusters side by side and rollouts whose stages do nothing, in turns on each.
 * Each round is compared with that of the cluster without any, so that what else the machine does meanwhile falls upon
 * both; processor time of our processes as well as throughput, since that is there to see on a busy machine.
 */
export function benchInstrumentation({ n, say }: BenchOptions): Promise<BenchResult> {
  return withFolder('i-', async (root) => {
    const llm = await PolicyServer.start();
    const collector = createServer((request, response) => {
      request.resume().once('end', () => response.end('{}'));
    });
    const tracesPort = await choosePort('traces', 29_318, false);
    collector.listen(tracesPort, '127.0.0.1');
    const traces = { endpoint: `http://127.0.0.1:${tracesPort}/v1/traces` };
    const clusters = new Map<Kind, Cluster>();
    const rounds: Record<Kind, Round>[] = [];
    const scraping = setInterval(() => void scrape(clusters), SCRAPE_MS);
    try {
      for (const [index, kind] of KINDS.entries()) {
        const options: ClusterOptions = {
          ...{ root: path.join(root, kind), hosts: ['a'], capacity: OPEN, llmUrl: llm.url },
          ...{ silentLlmSeconds: 60, runWorkers: 1 },
          handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
          ...(kind === 'off'
            ? { settings: { log: { level: 'silent', levels: {} } } }
            : { firstMetricsPort: FIRST_METRICS_PORT + 20 * index }),
          ...(kind === 'traced' ? { settings: { traces } } : {}),
        };
        clusters.set(kind, await Cluster.start(options));
      }
      const of = (kind: Kind, name: string) => round(clusters.get(kind) as Cluster, `${kind}-${name}`);
      for (let index = 0; index < WARM_UP; index++) for (const kind of KINDS) await of(kind, `warm-${index}`);
      const began = performance.now();
      for (let index = 0; index < (n ?? ROUNDS); index++) {
        if (performance.now() - began > LAST_ROUND_AFTER_MS) break;
        // Another one begins each time.
        const order = KINDS.map((_, at) => KINDS[(at + index) % KINDS.length] as Kind);
        const entries: [Kind, Round][] = [];
        for (const kind of order) entries.push([kind, await of(kind, String(index))]);
        rounds.push(Object.fromEntries(entries) as Record<Kind, Round>);
        say(`round ${index + 1}: ${JSON.stringify(rounds.at(-1))}`);
      }
    } finally {
      clearInterval(scraping);
      for (const cluster of clusters.values()) await cluster.stop();
      await llm.close();
      collector.closeAllConnections();
      collector.close();
    }
    return resultOf(rounds);
  });
}

function resultOf(rounds: readonly Record<Kind, Round>[]): BenchResult {
  const median = (of: (round: Record<Kind, Round>) => number) => rounded(percentile(rounds.map(of), 50));
  const figures = (kind: Kind) => ({
    rollouts_per_s: median((round) => round[kind].perSecond),
    workers_cpu_ms_per_rollout: median((round) => round[kind].cpu),
    all_cpu_ms_per_rollout: median((round) => round[kind].allCpu),
  });
  const beside = (kind: 'on' | 'traced', name: string) => ({
    ...interval(`${name}_per_s`, rounds, (round) => round[kind].perSecond / round.off.perSecond),
    ...interval(`${name}_cpu`, rounds, (round) => round.off.cpu / round[kind].cpu),
    ...interval(`${name}_all_cpu`, rounds, (round) => round.off.allCpu / round[kind].allCpu),
  });
  return {
    ...{ bench: 'instrumentation', n: rounds.length * OPEN, rounds: rounds.length, ...figures('on') },
    peers: { off: figures('off'), traced: figures('traced') },
    ratios: { ...beside('on', 'off'), ...beside('traced', 'traced_off') },
  };
}

/** The mean of a ratio over the rounds (of logarithms), and between what it lies at 95 %, as `_low` and `_high`. */
function interval(
  name: string,
  rounds: readonly Record<Kind, Round>[],
  of: (round: Record<Kind, Round>) => number,
) {
  const logs = rounds.map((round) => Math.log(of(round)));
  const mean = logs.reduce((sum, value) => sum + value, 0) / logs.length;
  const variance = logs.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (logs.length - 1);
  const error = 1.96 * Math.sqrt(variance / logs.length);
  const at = (offset: number) => rounded(Math.exp(mean + offset));
  return { [name]: at(0), [`${name}_low`]: at(-error), [`${name}_high`]: at(error) };
}

async function round({ members, client }: Cluster, name: string): Promise<Round> {
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
  return {
    ...{ perSecond: rounded(OPEN / seconds), cpu: rounded(cpu / OPEN) },
    allCpu: rounded((cpu + serverCpu) / OPEN),
  };
}

async function scrape(clusters: ReadonlyMap<Kind, Cluster>): Promise<void> {
  for (const [index, kind] of KINDS.entries()) {
    const processes = (clusters.get(kind)?.members.size ?? 1) - 1;
    for (let at = 0; kind !== 'off' && at < processes; at++) {
      const port = FIRST_METRICS_PORT + 20 * index + at;
      const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      if (!text.includes('rollouts_')) throw new Error(`port ${port} serves no metrics`);
    }
  }
}
