import type { ExecResult } from '../../../contracts/sandbox.ts';
import type { Reward } from '../../../contracts/trajectory.ts';

/** As judges say: accepted, wrong answer, time or memory limit, run-time error, compile error. */
export const VERDICTS = ['AC', 'WA', 'TLE', 'MLE', 'RE', 'CE'] as const;
export type Verdict = (typeof VERDICTS)[number];

const OUT_OF_MEMORY = /\bMemoryError\b|std::bad_alloc/;

/** What a program's end says about it; undefined if it ended well. */
export function verdictOfEnd({ timedOut, limit, exitCode, stderr }: ExecResult): Verdict | undefined {
  if (timedOut || limit === 'cpu' || limit === 'idle') return 'TLE';
  if (limit === 'memory') return 'MLE';
  if (limit === 'output') return 'WA';
  if (exitCode === 0) return undefined;
  return OUT_OF_MEMORY.test(stderr.text.slice(-2000)) ? 'MLE' : 'RE';
}

/** The reward for verdicts on a problem's tests: all of them right, or the share of them. */
export function rewardOf(verdicts: readonly Verdict[], tests: number, by: 'pass' | 'fraction'): Reward {
  const count = (verdict: Verdict) => verdicts.filter((one) => one === verdict).length;
  const passed = count('AC');
  const pass = passed === tests ? 1 : 0;
  const counts = Object.fromEntries(VERDICTS.map((verdict) => [verdict, count(verdict)]));
  return { total: by === 'pass' ? pass : passed / tests, parts: { pass, tests, ...counts } };
}
