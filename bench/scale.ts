import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Cluster } from '../chaos/cluster.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { residentMib } from './host.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, rounded } from './measure.ts';
import { withFolder } from './pipeline/folder.ts';

/** Rollouts open at once, one figure each; others by --n. */
const OPEN = [1_000, 4_000];
/** Rollouts begun while those are open. */
const NEWCOMERS = 10;
/** Calls under way at once that begin rollouts. */
const CALLERS = 64;
/** Rollouts that go through before anything is measured. */
const WARM_UP = 32;

/**
 * Rollouts that all wait for the model, without sandboxes: what they take in memory, how long a new one takes to its first
 * request meanwhile, and how long it takes to cancel them all by one call.
 */
export async function benchScale({ n, say }: BenchOptions): Promise<BenchResult> {
  const seen: Record<string, Scale> = {};
  let last: Scale | undefined;
  for (const open of n === null ? OPEN : [n]) {
    last = await withFolder('s-', (root) => scaleOf(open, root, say));
    seen[`open_${open}`] = last;
    say(`${open} open: ${JSON.stringify(last)}`);
  }
  const { open, rss_mb_per_1000_open, rollouts_per_s, ...rest } = last as Scale;
  const figures = { open, rss_mb_per_1000_open, rollouts_per_s, ...rest };
  return { bench: 'scale', n: NEWCOMERS, ...figures, runs: seen, peers: {}, ratios: {} };
}

interface Scale {
  readonly open: number;
  readonly rss_mb_per_1000_open: number;
  /** Of that, by kind of process. */
  readonly by_process_mb: Readonly<Record<string, number>>;
  /** From the first call to the last request at the LLM server. */
  readonly rollouts_per_s: number;
  readonly newcomer_p50_ms: number;
  readonly newcomer_max_ms: number;
  readonly cancel_call_ms: number;
  /** Until the LLM server had no request left, and until no rollout was open. */
  readonly cancel_llm_ms: number;
  readonly cancel_all_ms: number;
}

async function scaleOf(open: number, root: string, say: BenchOptions['say']): Promise<Scale> {
  const llm = await PolicyServer.start();
  const cluster = await Cluster.start({
    ...{
      root,
      hosts: ['a'],
      capacity: open + NEWCOMERS,
      llmUrl: llm.url,
      silentLlmSeconds: 3600,
      runWorkers: 1,
    },
    handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
    workers: { initSlots: 64 },
  });
  const { client } = cluster;
  const begin = (rolloutId: string, batchId: string) =>
    client.start({
      ...{ rolloutId, batchId, heartbeatTimeoutSeconds: 600, hostLostSeconds: 600 },
      task: {
        ...{ handler: 'waiting', id: rolloutId },
        data: { name: rolloutId, kind: 'usual', turns: 3, sandbox: false },
      },
    });
  const running = () => llm.served.filter(({ end }) => end === null).length;
  try {
    for (let at = 0; at < WARM_UP; at++) await begin(`warm-${at}`, 'warm');
    for (let at = 0; at < WARM_UP; at++) await client.result(`warm-${at}`);
    const before = memoryOf(cluster);
    llm.pace = { tokens: 1, ms: 3_600_000 };
    llm.served.length = 0;
    const started = performance.now();
    const numbers = Array.from({ length: open }, (_, at) => at).values();
    await Promise.all(
      Array.from({ length: CALLERS }, async () => {
        for (const at of numbers) await begin(`open-${at}`, 'all');
      }),
    );
    await until(() => llm.served.length === open);
    const seconds = (performance.now() - started) / 1000;
    say(`${open} open after ${Math.round(seconds)} s`);
    await delay(10_000); // what was put off while they began is done by then
    const after = memoryOf(cluster);
    const grown = Object.fromEntries(
      Object.entries(after).map(([kind, mb]) => [kind, mb - (before[kind] as number)]),
    );

    const newcomers: number[] = [];
    for (let at = 0; at < NEWCOMERS; at++) {
      const asked = performance.now();
      await begin(`new-${at}`, 'all');
      await until(() => llm.served.length === open + at + 1);
      newcomers.push(performance.now() - asked);
    }

    const cancelled = performance.now();
    const since = () => Math.round(performance.now() - cancelled);
    await client.cancelMany({ batchId: 'all' }, 'stale');
    const cancel_call_ms = since();
    await until(() => running() === 0);
    const cancel_llm_ms = since();
    const query = `BatchId = 'all' AND WorkflowType = 'rollout' AND ExecutionStatus = 'Running'`;
    await until(async () => (await client.temporal.workflow.count(query)).count === 0, 500);
    return {
      open,
      rss_mb_per_1000_open: rounded((1000 * sum(Object.values(grown))) / open),
      by_process_mb: grown,
      rollouts_per_s: rounded(open / seconds),
      newcomer_p50_ms: percentile(newcomers, 50),
      newcomer_max_ms: rounded(Math.max(...newcomers)),
      cancel_call_ms,
      cancel_llm_ms,
      cancel_all_ms: since(),
    };
  } finally {
    await cluster.stop();
    await llm.close();
  }
}

/** Mebibytes by kind of process. */
function memoryOf({ members }: Cluster): Record<string, number> {
  return Object.fromEntries(
    [...members.values()].map(({ name, pid }) => [name.split('-')[0], residentMib(pid as number)]),
  );
}

const sum = (values: readonly number[]) => values.reduce((total, each) => total + each, 0);

async function until(condition: () => boolean | Promise<boolean>, everyMs = 20): Promise<void> {
  while (!(await condition())) await delay(everyMs);
}
