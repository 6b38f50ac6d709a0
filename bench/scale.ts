import os from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Cluster } from '../chaos/cluster.ts';
import { PolicyServer } from '../chaos/policy-server.ts';
import { residentMib } from './host.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, rounded } from './measure.ts';
import { withFolder } from './pipeline/folder.ts';

/** Rollouts open at once, one figure each; others by --n. */
const OPEN = [1_000, 4_000, 16_000];
/** Mebibytes that each may take: more are not asked for than there is memory. */
const OPEN_MIB = 0.7;
/** Rollouts begun while those are open. */
const NEWCOMERS = 10;
/** Calls under way at once that begin rollouts. */
const CALLERS = 64;
/** Rollouts that go through before anything is measured. */
const WARM_UP = 32;
/** Milliseconds for each rollout to be begun and to get to the model (then it is measured what is open), and to end. */
const OPEN_MS = 300;
const CANCEL_MS = 300;
/** Milliseconds that the newcomers may take in all. */
const NEWCOMERS_MS = 30_000;

/**
 * Rollouts that all wait for the model, without sandboxes: what they take in memory, how long a new one takes to its first
 * request meanwhile, and how long it takes to cancel them all by one call.
 */
export async function benchScale({ n, say, production }: BenchOptions): Promise<BenchResult> {
  const seen: Record<string, Scale> = {};
  let last: Scale | undefined;
  for (const open of n === null ? OPEN : [n]) {
    const mib = os.freemem() / 1024 ** 2;
    if (n === null && open * OPEN_MIB > mib) {
      say(`${open} not tried: ${Math.round(mib)} MiB of memory are free`);
      continue;
    }
    last = await withFolder('s-', (root) => scaleOf(open, root, { say, production }));
    seen[`open_${open}`] = last;
    say(`${open} open: ${JSON.stringify(last)}`);
  }
  const { open, rss_mb_per_1000_open, rollouts_per_s, ...rest } = last as Scale;
  const figures = { open, rss_mb_per_1000_open, rollouts_per_s, ...rest };
  const server = production ? 'postgresql' : 'dev';
  return { bench: 'scale', n: NEWCOMERS, ...figures, server, runs: seen, peers: {}, ratios: {} };
}

interface Scale {
  /** As many as there were at the model in time. */
  readonly open: number;
  readonly asked: number;
  readonly rss_mb_per_1000_open: number;
  /** Of that, by kind of process. */
  readonly by_process_mb: Readonly<Record<string, number>>;
  /** From the first call to the last request at the LLM server. */
  readonly rollouts_per_s: number;
  /** Of those that got there in time, which are so many. */
  readonly newcomers: number;
  readonly newcomer_p50_ms: number | null;
  readonly newcomer_max_ms: number | null;
  readonly cancel_call_ms: number;
  /** Until the LLM server had no request left, and until no rollout was open; null: not in time. */
  readonly cancel_llm_ms: number | null;
  readonly cancel_all_ms: number | null;
  readonly left_open: number;
}

async function scaleOf(
  asked: number,
  root: string,
  { say, production }: Pick<BenchOptions, 'say' | 'production'>,
): Promise<Scale> {
  const llm = await PolicyServer.start();
  const cluster = await Cluster.start({
    ...{
      root,
      hosts: ['a'],
      capacity: asked + NEWCOMERS,
      llmUrl: llm.url,
      silentLlmSeconds: 3600,
      runWorkers: 1,
      production,
    },
    handlers: [fileURLToPath(new URL('./waiting.ts', import.meta.url))],
    workers: { initSlots: 64 },
  });
  const { client } = cluster;
  const begin = (rolloutId: string, batchId: string) =>
    client.start({
      ...{ rolloutId, batchId, heartbeatTimeoutSeconds: 600, hostLostSeconds: 600 },
      deadlines: { runSeconds: 86_400 }, // none is to end while others begin
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
    const since = (from: number) => performance.now() - from;
    const numbers = Array.from({ length: asked }, (_, at) => at).values();
    let begun = 0;
    await Promise.all(
      Array.from({ length: CALLERS }, async () => {
        for (const at of numbers) {
          if (since(started) > OPEN_MS * asked) break;
          await begin(`open-${at}`, 'all');
          begun++;
        }
      }),
    );
    await until(() => llm.served.length >= begun, OPEN_MS * asked - since(started));
    const last = Math.max(...llm.served.map(({ at }) => at));
    const seconds = (performance.timeOrigin + started - last) / -1000;
    say(`${llm.served.length} of ${asked} open after ${Math.round(seconds)} s`);
    await delay(10_000); // what was put off while they began is done by then
    const open = llm.served.length;
    const after = memoryOf(cluster);
    const grown = Object.fromEntries(
      Object.entries(after).map(([kind, mb]) => [kind, mb - (before[kind] as number)]),
    );

    const newcomers: number[] = [];
    const firstAsked = performance.now();
    for (let at = 0; at < NEWCOMERS && since(firstAsked) < NEWCOMERS_MS; at++) {
      const asked = performance.now();
      const name = `new-${at}`;
      await begin(name, 'all');
      if (await until(() => llm.served.some(({ task }) => task === name), NEWCOMERS_MS))
        newcomers.push(since(asked));
    }

    const cancelled = performance.now();
    const timeOf = (inTime: boolean) => (inTime ? Math.round(since(cancelled)) : null);
    await client.cancelMany({ batchId: 'all' }, 'stale');
    const cancel_call_ms = Math.round(since(cancelled));
    const cancel_llm_ms = timeOf(await until(() => running() === 0, CANCEL_MS * asked));
    const query = `BatchId = 'all' AND WorkflowType = 'rollout' AND ExecutionStatus = 'Running'`;
    const leftOpen = async () => (await client.temporal.workflow.count(query)).count;
    const left = CANCEL_MS * asked - since(cancelled);
    const cancel_all_ms = timeOf(await until(async () => (await leftOpen()) === 0, left, 500));
    const some = newcomers.length > 0;
    return {
      ...{ open, asked },
      rss_mb_per_1000_open: rounded((1000 * sum(Object.values(grown))) / open),
      by_process_mb: grown,
      rollouts_per_s: rounded(open / seconds),
      newcomers: newcomers.length,
      newcomer_p50_ms: some ? percentile(newcomers, 50) : null,
      newcomer_max_ms: some ? rounded(Math.max(...newcomers)) : null,
      ...{ cancel_call_ms, cancel_llm_ms, cancel_all_ms },
      left_open: await leftOpen(),
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

/** @returns false if it does not hold in time */
async function until(
  condition: () => boolean | Promise<boolean>,
  withinMs: number,
  everyMs = 20,
): Promise<boolean> {
  const giveUpAt = performance.now() + withinMs;
  while (!(await condition())) {
    if (performance.now() > giveUpAt) return false;
    await delay(everyMs);
  }
  return true;
}
