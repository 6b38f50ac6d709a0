import { z } from 'zod';
import { RolloutError } from '../../contracts/failures.ts';
import { type Reward, Trajectory } from '../../contracts/trajectory.ts';
import { rowsOf } from '../rows.ts';

/** One rollout, as an evaluation sees it. */
export interface Sample {
  /** Of the handler and the id: files of two kinds of task may name theirs alike. */
  readonly taskId: string;
  readonly domain: string;
  /** Null: it failed or was cancelled, and counts for nothing but that. */
  readonly reward: number | null;
  readonly truncated: boolean;
  readonly toolCalls: number;
  readonly tokens: number;
  /** Of sampling and of tools. */
  readonly seconds: number;
}

/** Fields by which data sets name a task's domain, in this order. */
const DOMAIN_FIELDS = ['domain', 'subject', 'category', 'type', 'difficulty', 'level'] as const;

/** What of a trajectory is looked at; the whole is checked by `rollouts verify`. */
const Line = z.object({
  rollout_id: z.string(),
  sequence_index: z.int(),
  task: Trajectory.shape.task,
  loss_mask: Trajectory.shape.loss_mask,
  reward: Trajectory.shape.reward,
  truncated: Trajectory.shape.truncated,
  turns: Trajectory.shape.turns,
});

/**
 * The rollouts in a file of trajectories; sequences of one rollout are one sample.
 * @throws RolloutError InvalidRequest that names the line
 */
export async function readSamples(file: string): Promise<Sample[]> {
  const byRollout = new Map<string, Sample>();
  const sequences = new Set<string>();
  for await (const row of rowsOf(file)) {
    const read = 'fields' in row ? Line.safeParse(row.fields) : undefined;
    if (!read?.data) {
      const why = 'problem' in row ? row.problem : z.prettifyError(read?.error as z.ZodError);
      throw new RolloutError('InvalidRequest', `${file}:${row.line}: no trajectory: ${why}`);
    }
    const line = read.data;
    const sequence = `${line.rollout_id} ${line.sequence_index}`;
    if (sequences.has(sequence)) {
      const what = `sequence ${line.sequence_index} of rollout ${line.rollout_id}`;
      throw new RolloutError('InvalidRequest', `${file}:${row.line}: ${what} is in the file twice`);
    }
    sequences.add(sequence);
    const before = byRollout.get(line.rollout_id);
    byRollout.set(line.rollout_id, before ? together(before, sampleOf(line)) : sampleOf(line));
  }
  return [...byRollout.values()];
}

function sampleOf({ task, loss_mask, reward, truncated, turns }: z.infer<typeof Line>): Sample {
  const calls = turns.flatMap(({ tool_calls }) => tool_calls);
  const ms = [...turns.map(({ generate_ms }) => generate_ms), ...calls.map((call) => call.ms ?? 0)];
  return {
    taskId: `${task.handler}/${task.id}`,
    domain: domainOf(task.data),
    reward: reward && gradedOf(reward),
    truncated: truncated !== null,
    toolCalls: calls.length,
    tokens: loss_mask.filter((mask) => mask === 1).length,
    seconds: ms.reduce((total, one) => total + one, 0) / 1000,
  };
}

/** What the grader gave: shaping is for training. A handler may have a part of that name without any. */
function gradedOf({ total, parts: { graded, format } }: Reward): number {
  const isShaped = graded !== undefined && format !== undefined && total === graded + format;
  return isShaped ? graded : total;
}

function domainOf(data: Record<string, unknown>): string {
  const named = DOMAIN_FIELDS.map((field) => data[field]).find(
    (value) => typeof value === 'string' || typeof value === 'number',
  );
  return named === undefined ? '-' : String(named);
}

function together(a: Sample, b: Sample): Sample {
  return {
    ...a,
    toolCalls: a.toolCalls + b.toolCalls,
    tokens: a.tokens + b.tokens,
    seconds: a.seconds + b.seconds,
  };
}
