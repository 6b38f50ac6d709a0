import type { Sample } from './samples.ts';
import { type Estimate, meanOf, meanShare, pairedP, passAtK } from './statistics.ts';

/** What an evaluation says about one domain, or about all. */
export interface Measures {
  readonly domain: string;
  readonly tasks: number;
  readonly samples: number;
  /** Samples without a reward: in nothing else of this. */
  readonly failed: number;
  /** pass@k, over the tasks that have k graded samples; right is a reward of 1 or more. */
  readonly passAt: Readonly<Record<number, Estimate>>;
  readonly meanReward: Estimate | undefined;
  /** Of graded samples: the share that was cut off, and means. */
  readonly truncated: number;
  readonly toolCalls: number;
  readonly tokens: number;
  readonly seconds: number;
}

/** Two policies on the tasks that both have graded samples of. */
export interface Comparison {
  readonly tasks: number;
  /** Tasks with graded samples in the first alone, and in the second alone: in nothing else of this. */
  readonly only: readonly [number, number];
  /** Samples of either without a reward: likewise. */
  readonly failed: readonly [number, number];
  /** Of mean rewards, the second's minus the first's. */
  readonly difference: Estimate | undefined;
  /** Of a paired sign-flip test, two-sided. */
  readonly p: number;
  readonly better: number;
  readonly worse: number;
}

/** Per domain, in the order of their names, then over all. Pure. */
export function measure(samples: readonly Sample[]): Measures[] {
  const domains = [...groupBy(samples, ({ domain }) => domain)].sort(([a], [b]) => a.localeCompare(b));
  const parts = domains.map(([domain, own]) => measuresOf(domain, own));
  return parts.length === 1 && parts[0]?.domain === '-'
    ? [measuresOf('all', samples)]
    : [...parts, measuresOf('all', samples)];
}

function measuresOf(domain: string, samples: readonly Sample[]): Measures {
  const graded = samples.filter(({ reward }) => reward !== null);
  const tasks = [...groupBy(graded, ({ taskId }) => taskId).values()];
  const most = Math.max(0, ...tasks.map((own) => own.length));
  const passAt: Record<number, Estimate> = {};
  for (let k = 1; k <= most; k++) {
    const shares = tasks.map((own) => passAtK(own.length, own.filter(isRight).length, k));
    const estimate = meanShare(shares.filter((share) => share !== undefined));
    if (estimate) passAt[k] = estimate;
  }
  const mean = (of: (sample: Sample) => number) =>
    graded.length === 0 ? 0 : graded.reduce((total, sample) => total + of(sample), 0) / graded.length;
  return {
    domain,
    tasks: new Set(samples.map(({ taskId }) => taskId)).size,
    samples: samples.length,
    failed: samples.length - graded.length,
    passAt,
    meanReward: meanOf(tasks.map(meanReward)),
    truncated: mean(({ truncated }) => (truncated ? 1 : 0)),
    toolCalls: mean(({ toolCalls }) => toolCalls),
    tokens: mean(({ tokens }) => tokens),
    seconds: mean(({ seconds }) => seconds),
  };
}

/** Compares by task: a task's mean reward in one file with its mean in the other. Pure. */
export function compare(first: readonly Sample[], second: readonly Sample[]): Comparison {
  const [a, b] = [first, second].map((samples) =>
    groupBy(
      samples.filter(({ reward }) => reward !== null),
      ({ taskId }) => taskId,
    ),
  ) as [Map<string, Sample[]>, Map<string, Sample[]>];
  const differences = [...a].flatMap(([taskId, own]) => {
    const other = b.get(taskId);
    return other ? [meanReward(other) - meanReward(own)] : [];
  });
  const failed = (samples: readonly Sample[]) => samples.filter(({ reward }) => reward === null).length;
  return {
    tasks: differences.length,
    only: [a.size - differences.length, b.size - differences.length],
    failed: [failed(first), failed(second)],
    difference: meanOf(differences),
    p: pairedP(differences),
    better: differences.filter((difference) => difference > 0).length,
    worse: differences.filter((difference) => difference < 0).length,
  };
}

const isRight = ({ reward }: Sample) => reward !== null && reward >= 1;
const meanReward = (samples: readonly Sample[]) =>
  samples.reduce((total, { reward }) => total + (reward ?? 0), 0) / samples.length;

function groupBy<T>(items: readonly T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}
