import { z } from 'zod';
import type { Random } from './random.ts';

/** What becomes of a task, besides what the suite does to it. */
export const TaskKind = z.enum([
  'usual',
  /** Wants more turns than it may have. */
  'long',
  /** The policy's doing: its commands run out of memory, out of time, or fail. */
  'memory',
  'timeout',
  'fails',
  /** The infrastructure's: its grader crashes each time. */
  'graderCrash',
  /** Is cancelled while it runs. */
  'cancelled',
]);
export type TaskKind = z.infer<typeof TaskKind>;

/** A task of the suite; all that the policy and the grader know. */
export const ChaosTask = z.object({
  name: z.string(),
  kind: TaskKind,
  /** Turns until the policy finishes. */
  turns: z.int().min(3),
});
export type ChaosTask = z.infer<typeof ChaosTask>;

/** Seconds that a command of a `timeout` task may take, and those of all others. */
export const TOOL_SECONDS = { short: 3, usual: 60 } as const;

/** One in how many tasks is of a kind; the rest is usual. */
const SPECIAL: readonly TaskKind[] = ['memory', 'timeout', 'fails', 'graderCrash', 'long', 'cancelled'];

/** `count` tasks of 6 to 12 turns: of every kind, half of them or more usual. */
export function makeTasks(count: number, random: Random, turns: readonly [number, number]): ChaosTask[] {
  const each = Math.max(1, Math.floor(count / 2 / SPECIAL.length));
  return Array.from({ length: count }, (_, index) => ({
    name: `t${String(index).padStart(2, '0')}`,
    kind: SPECIAL[Math.floor(index / each)] ?? 'usual',
    turns: random.between(...turns),
  }));
}
