import { fileURLToPath } from 'node:url';
import { Cluster, type ClusterOptions } from '../../chaos/cluster.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import type { BenchOptions, BenchResult } from '../main.ts';
import { percentile, rounded } from '../measure.ts';
import { withFolder } from './folder.ts';
import { SlottedServer } from './slotted-server.ts';
import { drawnMeans, drawnMs, drawTasks, runMs, type StagesTask } from './tasks.ts';

const TASKS = 120;
/** Requests that the LLM server serves at once, and serial rollouts. */
const SLOTS = 8;
/** Sandboxes of the host: as many as keep the LLM full and a few requests waiting. */
const CAPACITY = 40;
/** The window in which figures are taken: between these parts of all rollouts have ended. */
const STEADY = { from: 0.15, to: 0.6 };

/**
 * The same tasks once serially, one rollout at a time for each slot of the LLM server, and once through the three
 * pools, all of them submitted at once, and again with as many agents as the LLM takes (`workers.llmPacing`); real sandboxes, an LLM server
 * of limited capacity that measures itself.
 */
export async function benchPipeline({ n, say }: BenchOptions): Promise<BenchResult> {
  const tasks = drawTasks(n ?? TASKS);
  const llm = await SlottedServer.start(SLOTS);
  try {
    return await withFolder('p-', async (root) => {
      let pacing = false;
      const cluster = await Cluster.start({
        ...{ ...clusterOptions(root, llm), hosts: ['a'], capacity: CAPACITY },
        environmentOf: () => ({ ROLLOUTS_WORKERS_LLM_PACING: String(pacing) }),
      });
      try {
        const seen: Record<string, Figures> = {};
        for (const [how, atOnce] of [
          ['serial', SLOTS],
          ['pipeline', tasks.length],
          ['paced', tasks.length],
        ] as const) {
          if (how === 'paced') {
            pacing = true;
            for (const member of cluster.named('init')) await member.replace();
          }
          const from = Date.now();
          const results = await runTasks(cluster, tasks, how, atOnce);
          seen[how] = figuresOf(llm, tasks, results, from);
          say(`${how}: ${JSON.stringify(seen[how])}`);
        }
        const { serial, pipeline, paced } = seen as Record<'serial' | 'pipeline' | 'paced', Figures>;
        const drawn = tasks.map(drawnMs);
        return {
          bench: 'pipeline',
          n: tasks.length,
          serial_per_s: serial.per_s,
          pipeline_per_s: pipeline.per_s,
          llm_busy_pct: pipeline.llm_busy_pct,
          paced_per_s: paced.per_s,
          paced_llm_busy_pct: paced.llm_busy_pct,
          serial_llm_busy_pct: serial.llm_busy_pct,
          ideal_ratio: rounded(95 / serial.llm_busy_pct),
          p99_over_p50: pipeline.p99_over_p50,
          drawn_p99_over_p50: rounded(percentile(drawn, 99) / percentile(drawn, 50)),
          slots: SLOTS,
          capacity: CAPACITY,
          drawn: drawnMeans(tasks),
          runs: seen,
          peers: {},
          ratios: {
            serial: rounded(pipeline.per_s / serial.per_s),
            paced: rounded(paced.per_s / serial.per_s),
          },
        };
      } finally {
        await cluster.stop();
      }
    });
  } finally {
    await llm.close();
  }
}

/** What both pipeline benchmarks run on. */
export function clusterOptions(root: string, { entry }: SlottedServer) {
  const { url, ...llm } = entry;
  return {
    ...{ root, llmUrl: url, llm, silentLlmSeconds: 300, runWorkers: 1, graderCapacity: 16 },
    // Stages that wait for I/O take no processor: more of them at once than the defaults.
    workers: { initSlots: 16, evalSlots: 16 },
    handlers: [fileURLToPath(new URL('./handler.ts', import.meta.url))],
  } satisfies Partial<ClusterOptions>;
}

/** Runs tasks as rollouts, so many at a time. @throws Error if one was not graded */
export async function runTasks(
  { client }: Cluster,
  tasks: readonly StagesTask[],
  prefix: string,
  atOnce: number,
): Promise<RolloutResult[]> {
  const left = tasks.values();
  const results: RolloutResult[] = [];
  const work = async () => {
    for (const task of left) {
      const data = { ...task, name: `${prefix}-${task.name}` };
      const result = await client.execute({
        rolloutId: data.name,
        task: { handler: 'stages', id: data.name, data: { ...data } },
        heartbeatTimeoutSeconds: 60,
        hostLostSeconds: 120,
      });
      if (result.outcome !== 'completed') throw new Error(`${data.name}: ${JSON.stringify(result.failure)}`);
      results.push(result);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return results;
}

/** What was seen of rollouts, in steady state unless the name says otherwise. */
interface Figures {
  readonly per_s: number;
  readonly llm_busy_pct: number;
  readonly llm_waiting: number;
  readonly llm_wait_p50_ms: number;
  readonly whole_per_s: number;
  readonly whole_llm_busy_pct: number;
  readonly p50_s: number;
  readonly p99_over_p50: number;
  /** Means of what a stage took beyond what was drawn for it; of the run that is the wait for a slot of the LLM as well. */
  readonly beyond_drawn_ms: { readonly init: number; readonly run: number; readonly evaluate: number };
}

function figuresOf(
  llm: SlottedServer,
  tasks: readonly StagesTask[],
  results: readonly RolloutResult[],
  began: number,
): Figures {
  const { from, to, per_s } = steady(results);
  const ended = Math.max(...results.map(({ endedAt }) => Date.parse(endedAt)));
  const { busy_pct, waiting } = llm.usage(from, to);
  // Without the wait for a sandbox, which is the backlog of whoever submits all at once.
  const took = results.map(({ timings }) => timings.initMs + timings.runMs + timings.evaluateMs);
  return {
    per_s,
    llm_busy_pct: rounded(busy_pct),
    llm_waiting: rounded(waiting),
    llm_wait_p50_ms: percentile(
      llm.waits.filter(({ at }) => at >= from && at < to).map(({ ms }) => ms),
      50,
    ),
    whole_per_s: rounded((1000 * results.length) / (ended - began)),
    whole_llm_busy_pct: rounded(llm.usage(began, ended).busy_pct),
    p50_s: rounded(percentile(took, 50) / 1000),
    p99_over_p50: rounded(percentile(took, 99) / percentile(took, 50)),
    beyond_drawn_ms: beyondDrawn(tasks, results),
  };
}

function beyondDrawn(tasks: readonly StagesTask[], results: readonly RolloutResult[]) {
  const seen = (of: (timings: RolloutResult['timings']) => number) =>
    results.reduce((sum, { timings }) => sum + of(timings), 0);
  const drawn = (of: (task: StagesTask) => number) => tasks.reduce((sum, task) => sum + of(task), 0);
  const beyond = (all: number) => Math.round(all / results.length);
  return {
    init: beyond(seen(({ initMs }) => initMs) - drawn(({ initMs }) => initMs)),
    run: beyond(seen(({ runMs }) => runMs) - drawn(runMs)),
    evaluate: beyond(seen(({ evaluateMs }) => evaluateMs) - drawn(({ evaluateMs }) => evaluateMs)),
  };
}

/** The window of steady state, and the rollouts that ended in it for each second. */
export function steady(results: readonly RolloutResult[]): { from: number; to: number; per_s: number } {
  const ends = results.map(({ endedAt }) => Date.parse(endedAt)).sort((a, b) => a - b);
  const [first, last] = [Math.floor(ends.length * STEADY.from), Math.floor(ends.length * STEADY.to)];
  const [from, to] = [ends[first] as number, ends[last] as number];
  return { from, to, per_s: rounded((1000 * (last - first)) / (to - from)) };
}
