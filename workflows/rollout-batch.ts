import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  defineQuery,
  log,
  ParentClosePolicy,
  patched,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import {
  BATCH_EVENTS_QUERY,
  BATCH_STATUS_QUERY,
  type BatchActivities,
  type BatchEnd,
  type BatchEvent,
  type BatchInput,
  type BatchResult,
  type BatchState,
  type BatchStatus,
  FLOOR_SIGNAL,
  type FloorSignal,
} from '../contracts/batch.ts';
import {
  ADOPT_SIGNAL,
  type AdoptSignal,
  GROUP_ENDED_SIGNAL,
  type GroupEnded,
  type GroupInput,
  groupWorkflowId,
} from '../contracts/group.ts';
import { RECORDS_QUEUE } from '../contracts/queues.ts';
import type { CancelReason } from '../contracts/request.ts';
import { CANCEL_SIGNAL, type CancelSignal } from '../contracts/signals.ts';
import * as state from './batch-state.ts';
import { onSignal } from './guarded-signal.ts';
import { cancelProblem, endProblem, floorProblem } from './guards.ts';
import type { rolloutGroup } from './rollout-group.ts';
import { told } from './told.ts';

/** Milliseconds after which the store is asked for groups that have not been heard of: a terminated one says nothing. */
const LOOK_UP_MS = 300_000;
/** Between two looks at whether the batch before has ended. */
const ASK_AGAIN = '5s';
/** Groups begun in one go, so that the first reports are heard before the last is begun. */
const AT_ONCE = 16;

const records = proxyActivities<BatchActivities>({
  taskQueue: RECORDS_QUEUE,
  startToCloseTimeout: '2m',
  retry: { maximumInterval: '30s' },
});

/**
 * Groups until so many of them are of use (dynamic sampling). Its groups are children that do not end with it and report
 * by signal to its workflow id, so a new history, a crash or the end of the batch loses none.
 */
export async function rolloutBatch(input: BatchInput): Promise<BatchResult> {
  const batch = new Batch(input);
  onSignal<GroupEnded>(GROUP_ENDED_SIGNAL, endProblem, (end) => batch.heard(end));
  onSignal<CancelSignal>(CANCEL_SIGNAL, cancelProblem, ({ reason }) => batch.cancel(reason));
  onSignal<FloorSignal>(FLOOR_SIGNAL, floorProblem, ({ version }) => batch.raiseFloor(version));
  setHandler(defineQuery<BatchStatus>(BATCH_STATUS_QUERY), () => batch.status());
  setHandler(defineQuery<BatchEvent[], [number]>(BATCH_EVENTS_QUERY), (after) => batch.events(after));
  CancellationScope.current().cancelRequested.catch(() => batch.cancel('user'));
  return CancellationScope.nonCancellable(() => batch.execute());
}

class Batch {
  private readonly input: BatchInput;
  private state: BatchState;
  private ending: BatchEnd | null = null;
  private cancelled: CancelReason | undefined;
  /** Reports heard so far: one that comes while groups are begun is not waited for again. */
  private changes = 0;

  constructor(input: BatchInput) {
    this.input = input;
    this.state =
      input.state ?? state.begun(input, { ended: 0, version: null, floor: 0, carried: [], at: now() });
  }

  async execute(): Promise<BatchResult> {
    if (!this.input.state) await this.begin();
    const end = await this.untilItEnds();
    this.ending = end;
    this.state = state.withEvent(this.state, { at: now(), kind: 'ended', why: end });
    const result = await records.keepBatch({
      result: state.resultOf(this.input, this.state, end, now()),
    });
    const kept = new Set(result.surplus);
    const reason = end === 'cancelled' ? (this.cancelled ?? 'user') : 'batchComplete';
    const unwanted = state.surplusOf(this.state).filter(({ groupId }) => !kept.has(groupId));
    for (const { groupId, verdict } of unwanted) {
      if (verdict === 'open') await told(groupWorkflowId(groupId), CANCEL_SIGNAL, { reason });
    }
    this.show();
    await condition(allHandlersFinished);
    return result;
  }

  heard(end: GroupEnded): void {
    this.state = state.withEnd(this.state, end, this.input.rules, now());
    this.changes++;
    this.show();
  }

  raiseFloor(version: number): void {
    this.state = state.withFloor(this.state, version, now());
    this.changes++;
    this.show();
  }

  cancel(reason: CancelReason): void {
    this.cancelled ??= reason;
  }

  status(): BatchStatus {
    return {
      batchId: this.input.batchId,
      end: this.ending,
      wanted: this.state.wanted,
      admitted: this.state.admitted,
      counts: state.countsOf(this.state, this.input.sources),
      events: this.state.events.at(-1)?.number ?? 0,
    };
  }

  events(after: number): BatchEvent[] {
    return this.state.events.filter(({ number }) => number > after);
  }

  /** Takes over what the batch before left, and looks at the policy. */
  private async begin(): Promise<void> {
    const { rules } = this.input;
    let around = await records.surroundings();
    const carried = rules.carryFrom === undefined ? [] : await this.surplusOf(rules.carryFrom);
    // While it waited the policy went on.
    if (rules.carryFrom !== undefined && patched('what is around after the wait')) {
      around = await records.surroundings();
    }
    // It may have been raised meanwhile.
    const floor = Math.max(around.floor, this.state.oldestVersion);
    this.state = state.begun(this.input, { ...around, floor, carried, at: now() });
    const adopt: AdoptSignal = { reportTo: workflowInfo().workflowId };
    for (const groupId of carried) await told(groupWorkflowId(groupId), ADOPT_SIGNAL, adopt);
    // Those that had ended before they were told.
    if (carried.length > 0) await this.lookUp();
  }

  /** What another batch has left, when that has ended. */
  private async surplusOf(from: string): Promise<readonly string[]> {
    for (;;) {
      const { ended, groups } = await records.takeSurplus({ from, to: this.input.batchId });
      if (ended || this.cancelled) return groups;
      setCurrentDetails(`waits for the end of batch ${from}`);
      if (workflowInfo().continueAsNewSuggested && patched('a new history while it waits')) {
        await this.goOnAnew(this.input);
      }
      await condition(() => this.cancelled !== undefined, ASK_AGAIN);
    }
  }

  private async untilItEnds(): Promise<BatchEnd> {
    const { rules } = this.input;
    const until = Date.parse(this.state.startedAt) + rules.deadlineSeconds * 1000;
    for (;;) {
      if (this.cancelled) return 'cancelled';
      if (state.isFull(this.state)) return 'full';
      if (Date.now() >= until) return 'deadline';
      const before = this.changes;
      const exhausted = !(await this.refill());
      if (exhausted && state.countsOf(this.state, []).open === 0) return 'exhausted';
      if (workflowInfo().continueAsNewSuggested) await this.goOnAnew({ ...this.input, state: this.state });
      if (this.cancelled) continue;
      const something = () => this.changes > before || this.cancelled !== undefined;
      const waits = Math.max(1, Math.min(until - Date.now(), LOOK_UP_MS));
      if (!(await condition(something, waits))) await this.lookUp();
    }
  }

  /** Begins groups until enough are under way. @returns false if there are no more tasks */
  private async refill(): Promise<boolean> {
    const { rules, sources } = this.input;
    for (;;) {
      const begun: Promise<unknown>[] = [];
      let left = true;
      for (let n = Math.min(AT_ONCE, state.shortfall(this.state, rules)); n > 0 && left; n--) {
        const drawn = state.draw(this.state, sources, rules);
        left = drawn !== undefined;
        if (!drawn) break;
        const { source, row, round } = drawn;
        const groupId = `${this.input.batchId}:${source}.${row}${round === 0 ? '' : `.${round}`}`;
        this.state = state.withGroup(drawn.state, { groupId, source, row }, now());
        begun.push(this.start(groupId, source, row));
      }
      await Promise.all(begun);
      this.show();
      if (!left) return false;
      if (begun.length === 0 || this.cancelled) return true;
    }
  }

  private async start(groupId: string, source: number, row: number): Promise<void> {
    const { batchId, template, group, sources } = this.input;
    const input: GroupInput = {
      ...{ groupId, batchId, template, rules: group },
      task: { set: (sources[source] as BatchInput['sources'][number]).set, row },
      reportTo: workflowInfo().workflowId,
    };
    try {
      await startChild<typeof rolloutGroup>('rolloutGroup', {
        workflowId: groupWorkflowId(groupId),
        args: [input],
        parentClosePolicy: ParentClosePolicy.ABANDON,
        staticSummary: `${batchId} · ${groupId}`,
      });
    } catch (error) {
      // A batch that is reset begins again what is there: it reports to the same id.
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      log.info('is there already', { groupId });
    }
  }

  private async lookUp(): Promise<void> {
    const groupIds = this.state.groups
      .filter(({ verdict }) => verdict === 'open')
      .map(({ groupId }) => groupId);
    for (const end of await records.lookUpGroups({ groupIds })) this.heard(end);
  }

  private async goOnAnew(input: BatchInput): Promise<void> {
    await condition(allHandlersFinished);
    // Who cancels this history would not be heard in the next.
    if (this.cancelled) return;
    await continueAsNew<typeof rolloutBatch>(input);
  }

  /** Progress in Markdown, for the Temporal UI. */
  private show(): void {
    const { open, started, dropped } = state.countsOf(this.state, this.input.sources);
    const why = Object.entries(dropped).map(([verdict, count]) => `${count} ${verdict}`);
    setCurrentDetails(
      `**${this.state.admitted.length} of ${this.state.wanted} groups**, ${open} open, ${started} begun` +
        `${why.length > 0 ? `, dropped: ${why.join(', ')}` : ''}${this.ending ? ` · ${this.ending}` : ''}`,
    );
  }
}

const now = () => new Date().toISOString();
