import { requestsRepeated, sampledIn } from './checks.ts';
import type { Evidence } from './evidence.ts';
import type { FaultKind } from './plan.ts';
import type { Served } from './policy-server.ts';
import type { Fault } from './storm.ts';

/** Figures of one round; the last line of the suite is this as JSON. */
export interface RoundReport {
  readonly seed: number;
  readonly rollouts: number;
  readonly outcomes: Record<string, number>;
  /** How often each kind of fault was made. */
  readonly faults: Partial<Record<FaultKind, number>>;
  /** Kinds that could not be made on this machine, and why. */
  readonly skipped: Partial<Record<FaultKind, string>>;
  /** From a fault to the next progress of a rollout that it hit, in milliseconds. */
  readonly recovery_ms: Recovery;
  readonly recovery_by_fault: Partial<Record<FaultKind, Recovery>>;
  /** Attempts that were begun anew because a sandbox was lost, and the tokens that went with them. */
  readonly new_attempts: number;
  readonly tokens_lost_with_sandboxes: number;
  /** Tokens that the LLM server delivered and no ledger has: the turns in flight. */
  readonly tokens_wasted: number;
  readonly tokens_wasted_per_fault: number;
  readonly tokens_recorded: number;
  readonly requests_repeated: number;
  /** What was tried again, by type of failure. */
  readonly retried: Record<string, number>;
  readonly problems: readonly string[];
}

/** Times in which those that a fault hit went on. */
export interface Recovery {
  readonly n: number;
  readonly p50: number | null;
  readonly p99: number | null;
}

/** Everything that a report is made from. */
export interface Observed {
  readonly seed: number;
  readonly evidence: readonly Evidence[];
  readonly faults: readonly Fault[];
  readonly skipped: RoundReport['skipped'];
  readonly served: readonly Served[];
  readonly problems: readonly string[];
}

export function makeReport({ seed, evidence, faults, skipped, served, problems }: Observed): RoundReport {
  const recoveries = faults.map((fault) => ({ kind: fault.kind, times: recoveriesAfter(fault, evidence) }));
  const kinds = [...new Set(faults.map(({ kind }) => kind))].sort();
  const timesOf = (kind: FaultKind) =>
    recoveries.flatMap((recovery) => (recovery.kind === kind ? recovery.times : []));
  const inLedgers = total(evidence, ({ ledgers }) =>
    sampledIn([...ledgers.values()].flat().map((line) => line.record)),
  );
  const inLast = total(evidence, ({ stored }) => sampledIn(stored ?? []));
  const delivered = total(served, (request) => request.delivered);
  const servedTo = (one: Evidence) => served.filter(({ task }) => task === one.flight.task.name);
  return {
    seed,
    rollouts: evidence.length,
    outcomes: counts(evidence.map(({ terminal }) => terminal?.outcome ?? 'none')),
    faults: counts(faults.map(({ kind }) => kind)) as RoundReport['faults'],
    skipped,
    recovery_ms: recoveryOf(recoveries.flatMap(({ times }) => times)),
    recovery_by_fault: Object.fromEntries(kinds.map((kind) => [kind, recoveryOf(timesOf(kind))])),
    new_attempts: total(evidence, ({ terminal }) => Math.max(0, (terminal?.attempt ?? 1) - 1)),
    tokens_lost_with_sandboxes: inLedgers - inLast,
    tokens_wasted: delivered - inLedgers,
    tokens_wasted_per_fault: Math.round((delivered - inLedgers) / Math.max(1, faults.length)),
    tokens_recorded: inLast,
    requests_repeated: total(evidence, (one) => requestsRepeated(one, servedTo(one))),
    retried: counts(evidence.flatMap(({ terminal }) => terminal?.retried.map(({ type }) => type) ?? [])),
    problems,
  };
}

/**
 * How long each rollout took that a fault hit: those that had an activity on the process that was killed or
 * stopped; all that were open where Temporal, the workflow workers, a host, the LLM or the disk were hit and
 * something of theirs failed for it.
 */
function recoveriesAfter(fault: Fault, evidence: readonly Evidence[]): number[] {
  return evidence.flatMap((one) => {
    if (!wasHit(fault, one)) return [];
    const next = progressOf(one).find((at) => at > fault.at);
    return next === undefined ? [] : [next - fault.at];
  });
}

function wasHit(fault: Fault, { activities, flight }: Evidence): boolean {
  const { kind, at, endedAt, pid } = fault;
  const under = activities.filter(
    ({ startedAt, endedAt: end }) => startedAt !== null && startedAt < at && end > at,
  );
  switch (kind) {
    case 'killRun':
    case 'killInit':
    case 'killEval':
    case 'stopRun':
      return under.some(({ identity }) => identity?.startsWith(`${pid}@`));
    case 'killTemporal':
    case 'killWorkflow':
    case 'deploy':
      return under.length > 0;
    case 'killHost':
      return under.some(({ type, how }) => type === 'run' && how !== 'completed');
    case 'llmError':
    case 'llmHang':
    case 'llmCut':
      return activities.some((one) => one.type === 'run' && failedWithin(one, at, endedAt + 5000));
    case 'diskFull':
      return activities.some((one) => one.type !== 'init' && failedWithin(one, at, endedAt));
    case 'pause':
      return fault.target.split(',').includes(flight.task.name) && under.length > 0;
    case 'signals':
      return false; // nothing to recover from
  }
}

function failedWithin({ how, endedAt }: Evidence['activities'][number], from: number, to: number): boolean {
  return how !== 'completed' && endedAt >= from && endedAt <= to;
}

/** Moments at which something of a rollout was done for good. */
function progressOf({ ledgers, activities }: Evidence): number[] {
  return [
    ...[...ledgers.values()].flat().map(({ at }) => Date.parse(at)),
    ...activities.flatMap(({ how, type, endedAt }) =>
      how === 'completed' && ['init', 'evaluate', 'conclude'].includes(type) ? [endedAt] : [],
    ),
  ].sort((a, b) => a - b);
}

function recoveryOf(times: readonly number[]): Recovery {
  const sorted = [...times].sort((a, b) => a - b);
  const quantile = (q: number) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? null;
  return { n: sorted.length, p50: quantile(0.5), p99: quantile(0.99) };
}

function counts(names: readonly string[]): Record<string, number> {
  const result: Record<string, number> = {};
  for (const name of [...names].sort()) result[name] = (result[name] ?? 0) + 1;
  return result;
}

function total<T>(list: readonly T[], of: (one: T) => number): number {
  return list.reduce((sum, one) => sum + of(one), 0);
}
