import { z } from 'zod';
import { randomNumbers } from '../../client/eval/random.ts';
import { rounded } from '../measure.ts';

/** What one rollout's stages take, in milliseconds. */
export const StagesTask = z.object({
  name: z.string(),
  initMs: z.number(),
  /** Of each turn: the LLM server, and the tool that is called then; the last turn calls none. */
  turns: z.array(z.object({ llmMs: z.number(), toolMs: z.number() })).min(1),
  evaluateMs: z.number(),
});
export type StagesTask = z.infer<typeof StagesTask>;

const TURNS = 3;
/**
 * The distribution: each log-normal with this mean, and a tail that is this long (sigma of the logarithm; the 99th
 * percentile is e^(2.33 sigma) times the median: 6.4). The means are chosen so that an LLM slot with one rollout
 * at a time is busy for 35 to 40 % of the time.
 */
export const DISTRIBUTION = { sigma: 0.8, initMs: 3_000, llmMs: 1_333, toolMs: 200, evaluateMs: 2_300 };

/** So many tasks, the same ones for the same seed. */
export function drawTasks(n: number, seed = 1): StagesTask[] {
  const next = randomNumbers(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  const { sigma } = DISTRIBUTION;
  const draw = (mean: number) => Math.round(mean * Math.exp(sigma * normal() - sigma ** 2 / 2));
  return Array.from({ length: n }, (_, index) => ({
    name: `t${index}`,
    initMs: draw(DISTRIBUTION.initMs),
    turns: Array.from({ length: TURNS }, () => ({
      llmMs: draw(DISTRIBUTION.llmMs),
      toolMs: draw(DISTRIBUTION.toolMs),
    })),
    evaluateMs: draw(DISTRIBUTION.evaluateMs),
  }));
}

/** Milliseconds that a task takes if it waits for nothing. */
export function drawnMs(task: StagesTask): number {
  return task.initMs + runMs(task) + task.evaluateMs;
}

/** Of that, what the agent works. */
export function runMs({ turns }: StagesTask): number {
  return llmMs(turns) + turns.slice(0, -1).reduce((sum, { toolMs }) => sum + toolMs, 0);
}

/** What the drawn tasks come to, in seconds. */
export function drawnMeans(tasks: readonly StagesTask[]): { llm_s: number; all_s: number } {
  const mean = (of: (task: StagesTask) => number) =>
    rounded(tasks.reduce((sum, task) => sum + of(task), 0) / tasks.length / 1000);
  return { llm_s: mean(({ turns }) => llmMs(turns)), all_s: mean(drawnMs) };
}

const llmMs = (turns: StagesTask['turns']) => turns.reduce((sum, turn) => sum + turn.llmMs, 0);
