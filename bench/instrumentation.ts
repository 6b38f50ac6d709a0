import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Cluster, FIRST_METRICS_PORT } from '../chaos/cluster.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { PROJECT_ROOT } from '../config/tools.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { cpuMs, percentile, rounded } from './measure.ts';

/** Rounds with each, in turns, and rollouts open at once in one; more rounds by --n. */
const ROUNDS = 6;
const OPEN = 48;

/**
 * What metrics cost: two clusters side by side, one with metrics in every process, which are scraped after each round;
 * rollouts whose stages do nothing, in turns on one and the other. Processor time is compared as well as throughput,
 * since that is there to see on a machine that has other things to do.
 */
export async function benchInstrumentation({ n, say }: BenchOptions): Promise<BenchResult> {
  const rounds = n ?? ROUNDS;
  mkdirSync(path.join(PROJECT_ROOT, '.rollouts'), { recursive: true });
  const root = mkdtempSync(path.join(PROJECT_ROOT, '.rollouts', 'i-'));
  const llm = await PolicyServer.start();
  const started: Cluster[] = [];
  const figures = {
    off: { per_s: [] as number[], cpu_ms: [] as number[] },
    on: { per_s: [] as number[], cpu_ms: [] as number[] },
  };
  try {
    const start = async (metrics: boolean) => {
      const cluster = await Cluster.start({
        ...{ root: path.join(root, metrics ? 'n' : 'f'), hosts: ['a'], capacity: OPEN, llmUrl: llm.url },
        ...{ silentLlmSeconds: 60, runWorkers: 1, metrics },
        handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
      });
      started.push(cluster);
      return cluster;
    };
    const clusters = { off: await start(false), on: await start(true) };
    for (const cluster of started) await round(cluster, 'warm');
    for (let index = 0; index < rounds; index++) {
      // The one that comes second finds a warmer machine.
      for (const kind of index % 2 === 0 ? (['off', 'on'] as const) : (['on', 'off'] as const)) {
        const { perSecond, cpu } = await round(clusters[kind], `${kind}-${index}`);
        figures[kind].per_s.push(perSecond);
        figures[kind].cpu_ms.push(cpu);
      }
      say(`round ${index + 1}: ${JSON.stringify(figures)}`);
    }
  } finally {
    for (const cluster of started) await cluster.stop();
    await llm.close();
    rmSync(root, { recursive: true, force: true });
  }
  const median = (values: readonly number[]) => rounded(percentile(values, 50));
  const [off, on] = [figures.off, figures.on].map(({ per_s, cpu_ms }) => ({
    rollouts_per_s: median(per_s),
    workers_cpu_ms_per_rollout: median(cpu_ms),
  }));
  if (!off || !on) throw new Error('nothing was measured');
  return {
    ...{ bench: 'instrumentation', n: rounds * OPEN, ...on },
    peers: { off },
    ratios: {
      off_per_s: rounded(on.rollouts_per_s / off.rollouts_per_s),
      off_cpu: rounded(off.workers_cpu_ms_per_rollout / on.workers_cpu_ms_per_rollout),
    },
  };
}

async function round(cluster: Cluster, name: string): Promise<{ perSecond: number; cpu: number }> {
  const ours = [...cluster.members.values()].filter((member) => member.name !== 'temporal');
  const pids = ours.map(({ pid }) => pid as number);
  const before = cpuMs(pids);
  const began = performance.now();
  await Promise.all(
    Array.from({ length: OPEN }, async (_, index) => {
      const rolloutId = `${name}-${index}`;
      const data = { name: rolloutId, kind: 'usual', turns: 3, sandbox: false };
      await cluster.client.start({ rolloutId, task: { handler: 'waiting', id: rolloutId, data } });
      return cluster.client.result(rolloutId);
    }),
  );
  const seconds = (performance.now() - began) / 1000;
  if (name.startsWith('on')) await Promise.all(ours.map((_, index) => scrape(FIRST_METRICS_PORT + index)));
  return { perSecond: rounded(OPEN / seconds), cpu: rounded((cpuMs(pids) - before) / OPEN) };
}

async function scrape(port: number): Promise<void> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  if (!text.includes('rollouts_')) throw new Error(`port ${port} serves no metrics`);
}
