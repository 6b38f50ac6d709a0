import type {
  BatchCounts,
  BatchEnd,
  BatchEvent,
  BatchGroup,
  BatchInput,
  BatchResult,
  BatchState,
  TaskSource,
} from '../contracts/batch.ts';
import type { GroupEnded, Verdict } from '../contracts/group.ts';
import type { BatchRules } from '../contracts/group-rules.ts';

/*
 * What a batch decides: which tasks to begin, which groups are its own, when it is full. Pure: a state and what
 * happened give the next state.
 */

/** Events that are remembered; a reader that is further behind asks for the groups. */
const MOST_EVENTS = 1_000;
/** Groups that a batch begins at most: more is no batch, and would not fit into the next history. */
const MOST_BEGUN = 4_000;

/** What a batch begins with. */
export interface Beginning {
  /** Rollouts that ended in the last 10 minutes. */
  readonly ended: number;
  /** The policy's version, if a server is there. */
  readonly version: number | null;
  /** Lowest policy version still wanted in the pool. */
  readonly floor: number;
  /** Groups taken over. */
  readonly carried: readonly string[];
  readonly at: string;
}

/** The state at the start; groups that were taken over come first. */
export function begun(
  { rules, sources }: BatchInput,
  { ended, version, floor, carried, at }: Beginning,
): BatchState {
  const { staleness } = rules;
  return {
    wanted: adaptedSize(rules, ended),
    oldestVersion: Math.max(floor, staleness === undefined || version === null ? 0 : version - staleness),
    groups: carried.map((groupId) => ({
      ...{ groupId, source: -1, row: -1, carried: true, verdict: 'open' as const },
      ...{ rewardMean: null, tokens: 0, samples: 0 },
    })),
    decided: 0,
    admitted: [],
    drawn: sources.map(() => 0),
    credit: sources.map(() => 0),
    events: [],
    startedAt: at,
  };
}

/** min(most, ⌊base·(1 + ln(max(1, rollouts in 10 minutes)))⌋) where it is asked for. */
export function adaptedSize({ groups, adaptive }: BatchRules, ended: number): number {
  if (!adaptive) return groups;
  return Math.min(adaptive.most, Math.floor(groups * (1 + Math.log(Math.max(1, ended)))));
}

/**
 * The next task by weight, and the state after drawing it; undefined when all have been drawn often enough. One whose
 * group is of use, or may yet be, is not drawn again.
 */
export function draw(
  state: BatchState,
  sources: readonly TaskSource[],
  rules: BatchRules,
): { state: BatchState; source: number; row: number; round: number } | undefined {
  if (state.groups.length >= MOST_BEGUN) return undefined;
  const left = sources.map(
    ({ tasks }, index) => (state.drawn[index] as number) < tasks * rules.attemptsPerTask,
  );
  const total = sources.reduce((sum, { weight }, index) => sum + (left[index] ? weight : 0), 0);
  if (total === 0) return undefined;
  // Smooth weighted turns: each saves up its weight, the richest is drawn and pays for all.
  const credit = state.credit.map((saved, index) =>
    left[index] ? saved + (sources[index] as TaskSource).weight : 0,
  );
  const source = credit.reduce(
    (best, saved, index) => (left[index] && (best === -1 || saved > (credit[best] as number)) ? index : best),
    -1,
  );
  credit[source] = (credit[source] as number) - total;
  const before = state.drawn[source] as number;
  const { tasks, skip = 0 } = sources[source] as TaskSource;
  const drawn = state.drawn.map((count, index) => (index === source ? count + 1 : count));
  const [row, round] = [(skip + before) % tasks, Math.floor(before / tasks)];
  const next = { ...state, credit, drawn };
  const again =
    round > 0 &&
    state.groups.some(
      (group) =>
        group.source === source &&
        group.row === row &&
        (group.verdict === 'open' || group.verdict === 'useful'),
    );
  return again ? draw(next, sources, rules) : { state: next, source, row, round };
}

/** How many groups to begin now. */
export function shortfall(state: BatchState, { oversampling, openGroups }: BatchRules): number {
  const open = state.groups.filter(({ verdict }) => verdict === 'open').length;
  const waiting = state.groups.slice(state.decided).filter(({ verdict }) => verdict === 'useful').length;
  const missing = state.wanted - state.admitted.length - waiting;
  const target = Math.min(
    Math.ceil(Math.max(0, missing) * oversampling),
    openGroups ?? Number.POSITIVE_INFINITY,
  );
  return Math.max(0, target - open);
}

/** A group has been begun. */
export function withGroup(
  state: BatchState,
  group: Pick<BatchGroup, 'groupId' | 'source' | 'row'>,
  at: string,
): BatchState {
  const open: BatchGroup = {
    ...group,
    ...{ carried: false, verdict: 'open', rewardMean: null, tokens: 0, samples: 0 },
  };
  const next = { ...state, groups: [...state.groups, open] };
  return withEvent(next, { at, kind: 'started', groupId: group.groupId });
}

/** A group has ended; one that is not known or has ended before changes nothing. */
export function withEnd(state: BatchState, end: GroupEnded, rules: BatchRules, at: string): BatchState {
  const index = state.groups.findIndex(({ groupId }) => groupId === end.groupId);
  const group = state.groups[index];
  if (group?.verdict !== 'open') return state;
  const { rewardMean, tokens, samples, versions } = end;
  const ended: BatchGroup = {
    ...{ ...group, rewardMean, tokens, samples, verdict: verdictFor(state, end, rules) },
    ...(versions ? { oldestVersion: versions[0] } : {}),
  };
  return decided({ ...state, groups: state.groups.with(index, ended) }, at);
}

/** A policy version is the lowest still wanted: of what has not been decided on, nothing older is taken. */
export function withFloor(state: BatchState, version: number, at: string): BatchState {
  if (version <= state.oldestVersion) return state;
  const groups = state.groups.map((group, index): BatchGroup => {
    const { verdict, oldestVersion = version } = group;
    const stale = index >= state.decided && verdict === 'useful' && oldestVersion < version;
    return stale ? { ...group, verdict: 'stale' } : group;
  });
  return decided({ ...state, groups, oldestVersion: version }, at);
}

const EQUAL: readonly Verdict[] = ['allZero', 'allOne', 'allEqual'];

function verdictFor({ oldestVersion }: BatchState, end: GroupEnded, { dropEqual }: BatchRules) {
  const { verdict, versions } = end;
  const wouldDo = verdict === 'useful' || (!dropEqual && EQUAL.includes(verdict));
  if (wouldDo && versions && versions[0] < oldestVersion) return 'stale';
  // Kept as they are: what they are is told by their rewards.
  return wouldDo ? 'useful' : verdict;
}

/**
 * Decides on groups from the front of the order, up to the first that is open: those that end first are the short ones,
 * and a batch of these would be a batch of short samples.
 */
function decided(before: BatchState, at: string): BatchState {
  let state = before;
  while (state.admitted.length < state.wanted) {
    const group = state.groups[state.decided];
    if (group === undefined || group.verdict === 'open') return state;
    const { groupId, verdict } = group;
    state = { ...state, decided: state.decided + 1 };
    if (verdict === 'useful') {
      state = withEvent(
        { ...state, admitted: [...state.admitted, groupId] },
        { at, kind: 'admitted', groupId },
      );
    } else {
      state = withEvent(state, { at, kind: 'dropped', groupId, why: verdict });
    }
  }
  return state;
}

export function isFull({ admitted, wanted }: BatchState): boolean {
  return admitted.length >= wanted;
}

/** Groups that are open or useful and not the batch's. */
export function surplusOf({ groups, admitted }: BatchState): BatchGroup[] {
  const own = new Set(admitted);
  return groups.filter(
    ({ groupId, verdict }) => !own.has(groupId) && (verdict === 'open' || verdict === 'useful'),
  );
}

/** The last event. */
export function withEvent(state: BatchState, event: Omit<BatchEvent, 'number'>): BatchState {
  const number = (state.events.at(-1)?.number ?? 0) + 1;
  return { ...state, events: [...state.events, { number, ...event }].slice(-MOST_EVENTS) };
}

/** How a batch ended, for the store. */
export function resultOf(input: BatchInput, state: BatchState, end: BatchEnd, endedAt: string): BatchResult {
  const carries = input.rules.surplus === 'carry' && end !== 'cancelled';
  return {
    schemaVersion: 1,
    batchId: input.batchId,
    digest: input.digest ?? null,
    end,
    wanted: state.wanted,
    groups: state.admitted,
    surplus: carries ? surplusOf(state).map(({ groupId }) => groupId) : [],
    counts: countsOf(state, input.sources),
    drawn: state.drawn,
    startedAt: state.startedAt,
    endedAt,
  };
}

/** What became of the groups. */
export function countsOf(state: BatchState, sources: readonly TaskSource[]): BatchCounts {
  const own = new Set(state.admitted);
  const dropped: Record<string, number> = {};
  for (const { groupId, verdict } of state.groups) {
    if (own.has(groupId) || verdict === 'open' || verdict === 'useful') continue;
    dropped[verdict] = (dropped[verdict] ?? 0) + 1;
  }
  const byDomain: Record<string, { started: number; admitted: number }> = {};
  for (const { source, groupId } of state.groups) {
    const domain = sources[source]?.domain ?? 'carried';
    const counts = byDomain[domain] ?? { started: 0, admitted: 0 };
    byDomain[domain] = {
      started: counts.started + 1,
      admitted: counts.admitted + (own.has(groupId) ? 1 : 0),
    };
  }
  const ended = state.groups.filter(({ samples }) => samples > 0);
  const tokens = (groups: readonly BatchGroup[]) =>
    mean(groups.map((group) => [group.tokens / group.samples, group.samples]));
  return {
    started: state.groups.filter(({ carried }) => !carried).length,
    carried: state.groups.filter(({ carried }) => carried).length,
    open: state.groups.filter(({ verdict }) => verdict === 'open').length,
    admitted: state.admitted.length,
    dropped,
    byDomain,
    tokensAdmitted: tokens(ended.filter(({ groupId }) => own.has(groupId))),
    tokensDiscarded: tokens(ended.filter(({ groupId }) => !own.has(groupId))),
    rewardMean: mean(ended.map(({ rewardMean, samples }) => [rewardMean ?? 0, samples])),
  };
}

/** Weighted mean of [value, weight]; null of nothing. */
function mean(values: readonly (readonly [number, number])[]): number | null {
  const weights = values.reduce((sum, [, weight]) => sum + weight, 0);
  return weights === 0 ? null : values.reduce((sum, [value, weight]) => sum + value * weight, 0) / weights;
}
