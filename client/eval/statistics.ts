import { randomNumbers } from './random.ts';

/** An estimate with its 95 % confidence interval. */
export interface Estimate {
  readonly value: number;
  readonly low: number;
  readonly high: number;
  /** Tasks that it is an average over. */
  readonly tasks: number;
}

/** Standard normal quantile of a two-sided 95 %. */
const Z = 1.959964;
/** Sign flips that are counted one by one; of more tasks, so many random ones. */
const [MOST_EXACT, RANDOM_FLIPS] = [14, 20_000];

/**
 * pass@k of one task, without bias: the chance that k of its n samples, drawn without putting back, hold at least one
 * of the c right ones: 1 − C(n−c, k) / C(n, k). Undefined if there are fewer than k samples.
 */
export function passAtK(n: number, c: number, k: number): number | undefined {
  if (n < k) return undefined;
  if (n - c < k) return 1;
  let allWrong = 1;
  for (let i = n - c + 1; i <= n; i++) allWrong *= 1 - k / i;
  return 1 - allWrong;
}

/**
 * The mean of shares between 0 and 1, one for each task, with Wilson's interval: tasks are what was drawn, and shares
 * spread no wider than yes and no with the same mean. Undefined without tasks.
 */
export function meanShare(shares: readonly number[]): Estimate | undefined {
  const n = shares.length;
  if (n === 0) return undefined;
  const p = mean(shares);
  const centre = (p + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z / (1 + Z ** 2 / n)) * Math.sqrt(Math.max(0, (p * (1 - p)) / n + Z ** 2 / (4 * n ** 2)));
  return { value: p, low: Math.max(0, centre - half), high: Math.min(1, centre + half), tasks: n };
}

/** The mean of any values, one for each task, with the interval of their spread. Undefined without tasks. */
export function meanOf(values: readonly number[]): Estimate | undefined {
  const n = values.length;
  if (n === 0) return undefined;
  const centre = mean(values);
  const variance = values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / Math.max(1, n - 1);
  const half = Z * Math.sqrt(variance / n);
  return { value: centre, low: centre - half, high: centre + half, tasks: n };
}

/**
 * How likely differences of a mean as large as theirs, in either direction, are if it is chance which of two each task
 * favours: a sign-flip test, exact for up to 14 tasks that differ, else over 20,000 flips that are the same each time.
 */
export function pairedP(differences: readonly number[]): number {
  const differing = differences.filter((difference) => difference !== 0);
  if (differing.length === 0) return 1;
  const observed = Math.abs(sum(differing)) - 1e-9;
  const atLeast = (flip: (index: number) => boolean) =>
    Math.abs(differing.reduce((total, difference, i) => total + (flip(i) ? -difference : difference), 0)) >=
    observed;
  if (differing.length <= MOST_EXACT) {
    const all = 2 ** differing.length;
    let count = 0;
    for (let flips = 0; flips < all; flips++) if (atLeast((index) => ((flips >> index) & 1) === 1)) count++;
    return count / all;
  }
  const random = randomNumbers(1);
  let count = 0;
  for (let flips = 0; flips < RANDOM_FLIPS; flips++) if (atLeast(() => random() < 0.5)) count++;
  return (count + 1) / (RANDOM_FLIPS + 1);
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
const mean = (values: readonly number[]) => sum(values) / values.length;
