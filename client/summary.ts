import { FAILURES, type FailureType } from '../contracts/failures.ts';
import type { RolloutResult } from '../contracts/result.ts';
import { tableOf } from './output.ts';

/** One task's rollouts in figures. */
export interface TaskSummary {
  readonly task: string;
  readonly samples: number;
  readonly graded: number;
  /** Mean over graded rollouts; null if there are none. Failures are never averaged in. */
  readonly meanReward: number | null;
  /** Sampled tokens. */
  readonly tokens: number;
  /** Mean seconds from start to end, queues included. */
  readonly seconds: number;
}

/** A batch in figures. */
export interface BatchSummary {
  readonly batchId: string;
  readonly rollouts: number;
  readonly outcomes: Record<RolloutResult['outcome'], number>;
  /** By failure type: how many, and the first one's own words. */
  readonly failures: Partial<Record<FailureType, { count: number; first: string }>>;
  readonly meanReward: number | null;
  readonly tokens: number;
  /** Wall-clock seconds of the whole batch. */
  readonly seconds: number;
  readonly tasks: TaskSummary[];
}

/** Gathers results into figures; keeps no result. */
export class BatchTally {
  private readonly byTask = new Map<
    string,
    { samples: number; graded: number; reward: number; tokens: number; ms: number }
  >();
  private readonly outcomes = { completed: 0, truncated: 0, cancelled: 0, failed: 0 };
  private readonly failures: BatchSummary['failures'] = {};
  private readonly started = Date.now();

  add(result: RolloutResult): void {
    const task = this.byTask.get(result.taskId) ?? { samples: 0, graded: 0, reward: 0, tokens: 0, ms: 0 };
    this.byTask.set(result.taskId, task);
    task.samples++;
    task.tokens += result.trajectory?.sampledTokens ?? 0;
    task.ms += result.timings.totalMs;
    if (result.reward) {
      task.graded++;
      task.reward += result.reward.total;
    }
    this.outcomes[result.outcome]++;
    if (result.failure) {
      const { type, message } = result.failure;
      const known = this.failures[type] ?? { count: 0, first: message };
      this.failures[type] = { ...known, count: known.count + 1 };
    }
  }

  summary(batchId: string): BatchSummary {
    const all = [...this.byTask.values()];
    const sum = (field: 'samples' | 'graded' | 'reward' | 'tokens') =>
      all.reduce((total, task) => total + task[field], 0);
    return {
      batchId,
      rollouts: sum('samples'),
      outcomes: { ...this.outcomes },
      failures: { ...this.failures },
      meanReward: sum('graded') === 0 ? null : sum('reward') / sum('graded'),
      tokens: sum('tokens'),
      seconds: (Date.now() - this.started) / 1000,
      tasks: [...this.byTask].map(([name, task]) => ({
        task: name,
        samples: task.samples,
        graded: task.graded,
        meanReward: task.graded === 0 ? null : task.reward / task.graded,
        tokens: task.tokens,
        seconds: task.ms / task.samples / 1000,
      })),
    };
  }
}

/** The figures as a table for a person; many tasks are shown as their total only. */
export function summaryText(summary: BatchSummary, mostTasks = 50): string {
  const reward = (mean: number | null) => (mean === null ? '-' : mean.toFixed(2));
  const rows =
    summary.tasks.length > mostTasks
      ? []
      : summary.tasks.map((task) => [
          task.task,
          String(task.samples),
          reward(task.meanReward),
          String(task.tokens),
          task.seconds.toFixed(1),
        ]);
  rows.push([
    `all (${summary.tasks.length} tasks)`,
    String(summary.rollouts),
    reward(summary.meanReward),
    String(summary.tokens),
    `${summary.seconds.toFixed(1)} in all`,
  ]);
  const counts = Object.entries(summary.outcomes)
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${count} ${name}`);
  const failures = Object.entries(summary.failures).map(
    ([type, { count, first }]) => `${count} ${type}: ${first}\n  ${FAILURES[type as FailureType].advice}`,
  );
  return `${tableOf(['task', 'samples', 'mean reward', 'tokens', 'seconds'], rows)}\n${[counts.join(', '), ...failures].join('\n')}`;
}
