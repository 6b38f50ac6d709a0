import type { Random } from './random.ts';

/** What is done to a running cluster, and how often in a full round. */
export const FAULTS = {
  killRun: 4,
  killInit: 2,
  killEval: 3,
  killWorkflow: 2,
  killHost: 2,
  killTemporal: 2,
  /** SIGSTOP of a run worker for longer than the heartbeat timeout, then SIGCONT. */
  stopRun: 3,
  llmError: 3,
  llmHang: 2,
  llmCut: 3,
  diskFull: 2,
  /** Signals twice, out of order, and malformed. */
  signals: 4,
  pause: 4,
  /** SIGTERM to all workers, one after the other. */
  deploy: 1,
} as const;
export type FaultKind = keyof typeof FAULTS;
export const KINDS = Object.keys(FAULTS) as FaultKind[];

/** One fault of a plan. */
export interface PlannedFault {
  readonly kind: FaultKind;
  /** Milliseconds after the beginning. */
  readonly at: number;
  /** Milliseconds that it lasts, where it lasts. */
  readonly lasts: number;
  /** Decides whom it hits, in [0, 1). */
  readonly whom: number;
}

/** Milliseconds that each kind lasts, from and to; the others are over at once. */
const LASTS: Partial<Record<FaultKind, readonly [number, number]>> = {
  llmError: [800, 3000],
  llmHang: [2500, 4000],
  llmCut: [800, 3000],
  diskFull: [2000, 5000],
  pause: [500, 6000],
};

/**
 * The faults of a round at seeded moments of `windowMs`, in order of time; `once`: one of each kind. Every kind
 * that is in `only` has the moments that it has in a whole plan.
 */
export function makePlan(
  random: Random,
  { windowMs, once, stopMs }: { windowMs: number; once: boolean; stopMs: number },
  only: readonly FaultKind[] = KINDS,
): PlannedFault[] {
  const kinds = Object.entries(FAULTS).flatMap(([kind, times]) =>
    Array.from({ length: once ? 1 : times }, () => kind as FaultKind),
  );
  return kinds
    .map((kind) => {
      const [least, most] = LASTS[kind] ?? [0, 0];
      const lasts = kind === 'stopRun' ? stopMs : random.between(least, most);
      return { kind, at: random.between(0, windowMs), lasts, whom: random.next() };
    })
    .filter(({ kind }) => only.includes(kind))
    .sort((a, b) => a.at - b.at);
}
