import {
  allHandlersFinished,
  CancellationScope,
  condition,
  defineQuery,
  defineSignal,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import {
  ADOPT_SIGNAL,
  type AdoptSignal,
  GROUP_ENDED_SIGNAL,
  GROUP_STATUS_QUERY,
  type GroupActivities,
  type GroupEnded,
  type GroupInput,
  type GroupResult,
  type GroupStatus,
  ROLLOUT_ENDED_SIGNAL,
  type RolloutEnded,
  reportOf,
} from '../contracts/group.ts';
import { RECORDS_QUEUE } from '../contracts/queues.ts';
import type { CancelReason } from '../contracts/request.ts';
import { CANCEL_SIGNAL, type CancelSignal, PAUSE, RESUME } from '../contracts/signals.ts';
import { isReplaceable, judged, totalsOf, verdictOf } from './group-judge.ts';
import { onSignal } from './guarded-signal.ts';
import { adoptProblem, cancelProblem, endProblem } from './guards.ts';
import { reasonOf } from './pool-servers.ts';
import { told } from './told.ts';

/** Milliseconds after which the store is asked for what has not been heard of: a terminated rollout says nothing. */
const LOOK_UP_MS = 300_000;
/** For rollouts that were told to end; then the group ends without them. */
const WIND_UP = '10m';

const records = proxyActivities<GroupActivities>({
  taskQueue: RECORDS_QUEUE,
  startToCloseTimeout: '2m',
  retry: {
    maximumInterval: '30s',
    nonRetryableErrorTypes: ['InvalidTask', 'InvalidRequest', 'UnknownHandler'],
  },
});

/**
 * All samples of one task. Its rollouts are workflows of their own that it begins by an activity, so that the task is
 * in no other history than theirs, and whose ends it hears of by signal: none ends with it.
 */
export async function rolloutGroup(input: GroupInput): Promise<GroupResult> {
  const group = new Group(input);
  onSignal<RolloutEnded>(ROLLOUT_ENDED_SIGNAL, endProblem, (end) => group.heard(end));
  onSignal<AdoptSignal>(ADOPT_SIGNAL, adoptProblem, ({ reportTo }) => {
    group.reportTo = reportTo;
  });
  onSignal<CancelSignal>(CANCEL_SIGNAL, cancelProblem, ({ reason }) => group.cancel(reason));
  setHandler(defineSignal(PAUSE), () => group.pause(true));
  setHandler(defineSignal(RESUME), () => group.pause(false));
  setHandler(defineQuery<GroupStatus>(GROUP_STATUS_QUERY), () => group.status());
  CancellationScope.current().cancelRequested.catch(() => group.cancel('user'));
  return CancellationScope.nonCancellable(() => group.execute());
}

class Group {
  reportTo: string | undefined;
  private readonly input: GroupInput;
  /** Numbers begun, from 0. */
  private begun = 0;
  private readonly ended = new Map<string, RolloutEnded>();
  private cancelled: CancelReason | undefined;
  private paused = false;

  constructor(input: GroupInput) {
    this.input = input;
    this.reportTo = input.reportTo;
  }

  async execute(): Promise<GroupResult> {
    const { rules, groupId, batchId, digest } = this.input;
    const until = Date.now() + rules.deadlineSeconds * 1000;
    const startedAt = workflowInfo().startTime.toISOString();
    let task = { taskId: '', handler: '' };
    let problem: string | null = null;
    while (!this.cancelled && Date.now() < until) {
      const numbers = this.missing();
      if (numbers.length > 0) {
        try {
          task = await records.beginRollouts({ group: this.input, numbers });
        } catch (error) {
          problem = reasonOf(error).message;
          break;
        }
        this.begun += numbers.length;
        if (this.paused) await this.tell(PAUSE);
      } else if (this.open.length === 0) break;
      else await this.untilSomethingIsToDo(until);
    }
    if (this.open.length > 0) await this.endOpen();
    const samples = this.ids
      .map((id) => this.ended.get(id))
      .filter((end) => end !== undefined)
      .map((end) => judged(end, rules.overlong));
    const result = await records.keepGroup({
      result: {
        schemaVersion: 1,
        ...{ groupId, batchId: batchId ?? null, digest: digest ?? null, ...task },
        verdict: verdictOf(samples, rules, this.cancelled !== undefined),
        samples,
        problem,
        replaced: Math.max(0, this.begun - rules.samples),
        ...totalsOf(samples, rules),
        startedAt,
        endedAt: new Date().toISOString(),
      },
    });
    setCurrentDetails(`**${result.verdict}**: ${samples.map(({ shaped }) => shaped ?? '–').join(' ')}`);
    await this.report(reportOf(result));
    await condition(allHandlersFinished);
    return result;
  }

  heard(end: RolloutEnded): void {
    this.ended.set(end.rolloutId, end);
    setCurrentDetails(`${this.ended.size} of ${this.begun} rollouts have ended`);
  }

  cancel(reason: CancelReason): void {
    this.cancelled ??= reason;
  }

  /** Also of what is begun later. */
  async pause(paused: boolean): Promise<void> {
    this.paused = paused;
    await this.tell(paused ? PAUSE : RESUME);
  }

  private async tell(name: string): Promise<void> {
    await Promise.all(this.open.map((id) => told(id, name)));
  }

  status(): GroupStatus {
    return { groupId: this.input.groupId, open: this.open.length, ended: [...this.ended.values()] };
  }

  private get ids(): string[] {
    return Array.from({ length: this.begun }, (_, number) => `${this.input.groupId}.${number}`);
  }

  private get open(): string[] {
    return this.ids.filter((id) => !this.ended.has(id));
  }

  /** Numbers to begin: all samples, and one in the place of each that was lost. */
  private missing(): number[] {
    const { samples, replacements } = this.input.rules;
    const lost = [...this.ended.values()].filter(isReplaceable).length;
    const wanted = samples + Math.min(lost, replacements);
    return Array.from({ length: wanted - this.begun }, (_, index) => this.begun + index);
  }

  private async untilSomethingIsToDo(until: number): Promise<void> {
    const something = () =>
      this.open.length === 0 || this.missing().length > 0 || this.cancelled !== undefined;
    if (await condition(something, Math.max(1, Math.min(until - Date.now(), LOOK_UP_MS)))) return;
    for (const end of await records.lookUpRollouts({ rolloutIds: this.open })) this.heard(end);
  }

  /** Ends what is open and hears of it. */
  private async endOpen(): Promise<void> {
    const signal: CancelSignal = { reason: this.cancelled ?? 'deadline' };
    await Promise.all(this.open.map((id) => told(id, CANCEL_SIGNAL, signal)));
    if (await condition(() => this.open.length === 0, WIND_UP)) return;
    for (const end of await records.lookUpRollouts({ rolloutIds: this.open })) this.heard(end);
  }

  /** Its batch may have ended: then nobody waits for it, and the store has it for who takes it over. */
  private async report(end: GroupEnded): Promise<void> {
    for (let to = this.reportTo; to !== undefined; to = this.reportTo === to ? undefined : this.reportTo) {
      await told(to, GROUP_ENDED_SIGNAL, end);
    }
  }
}
