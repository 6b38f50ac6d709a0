import {
  ApplicationFailure,
  allHandlersFinished,
  CancellationScope,
  condition,
  isCancellation,
  log,
  patched,
  setCurrentDetails,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import { type SettledRequest, settledDeadlines } from '../contracts/deadlines.ts';
import { type FailureType, helpsInNewAttempt, helpsInStage, type Stage } from '../contracts/failures.ts';
import { endOf, ROLLOUT_ENDED_SIGNAL } from '../contracts/group.ts';
import type { CancelReason, RolloutRequest } from '../contracts/request.ts';
import type { RolloutResult, StageFailure } from '../contracts/result.ts';
import { SEARCH_ATTRIBUTES as ATTRIBUTES } from '../contracts/search-attributes.ts';
import type { RolloutStatus, StageStartedSignal, StageWaitsSignal } from '../contracts/signals.ts';
import type { Placement, RunReport } from '../contracts/stages.ts';
import { stageFailureOf } from './failures.ts';
import { requestProblem } from './guards.ts';
import { HeldSandbox } from './held-sandbox.ts';
import { linesSay } from './log-lines.ts';
import { type Known, summaryOf, ungradedRecord } from './record.ts';
import { RunEntries } from './run-entries.ts';
import { concludeActivity, evaluateStage, initStage } from './stages.ts';
import { type Steered, steer } from './steering.ts';
import { told } from './told.ts';

/** After these its sandbox's host may be dead, cut off, or on its way up. */
const HOST_AWAY: ReadonlySet<FailureType> = new Set(['HostLost', 'HostUnreachable', 'SandboxLost']);

/**
 * One rollout: init, run, evaluate, with one terminal record at the end. Completed, truncated and cancelled
 * rollouts return it; a failed one fails with the record in the failure's details.
 */
export async function rollout(request: RolloutRequest): Promise<RolloutResult> {
  const problem = requestProblem(request);
  if (problem) throw ApplicationFailure.nonRetryable(problem, 'InvalidRequest');
  return new Rollout(request).execute();
}

class Rollout implements Known, Steered {
  readonly request: RolloutRequest;
  readonly startedAt = workflowInfo().startTime.toISOString();
  private readonly scope = new CancellationScope();
  readonly retried: StageFailure[] = [];
  private stage: Stage | 'ended' = 'queued';
  /** The stage as the search attribute has it. */
  private listed: Stage = 'queued';
  attempt = 0;
  sandbox: HeldSandbox | undefined;
  run: RunEntries | undefined;
  report: RunReport | undefined;
  cancelled: { reason: CancelReason; stage: Stage; at: number } | undefined;
  private ended: RolloutResult | undefined;
  private pauseRequested = false;
  /** Of the init stage, as long as it has made no sandbox. */
  private waiting: CancellationScope | undefined;
  pausedMs = 0;

  constructor(request: RolloutRequest) {
    this.request = request;
    steer(this);
  }

  async execute(): Promise<RolloutResult> {
    this.limitWholeTime();
    try {
      return await this.scope.run(() => this.attempts());
    } catch (error) {
      return await CancellationScope.nonCancellable(() => this.windUp(error));
    } finally {
      await CancellationScope.nonCancellable(() => this.takeLeave());
    }
  }

  /** Begins again from init where the failure table says that it helps, up to the request's limit. */
  private async attempts(): Promise<RolloutResult> {
    for (;;) {
      this.attempt++;
      try {
        return await this.oneAttempt();
      } catch (error) {
        const mayTry = this.attempt < this.request.attempts.rollout;
        const { type } = this.noteRetry(error, helpsInNewAttempt, mayTry);
        await CancellationScope.nonCancellable(async () => this.giveUpSandbox(type));
        await backOff(this.attempt);
      }
    }
  }

  /** Room is made before the next attempt asks for it, unless the host may be away: nobody waits for that. */
  private async giveUpSandbox(failure: FailureType): Promise<void> {
    const { sandbox } = this;
    if (HOST_AWAY.has(failure) && patched('a host that is away is not waited for')) {
      void sandbox?.release('failed', '7d');
    } else {
      await sandbox?.release('failed');
    }
  }

  private async oneAttempt(): Promise<RolloutResult> {
    const { attempt, retried, startedAt } = this;
    this.sandbox = this.run = this.report = undefined;
    const placement = await this.tryStage(() => this.place());
    const deadlines = settledDeadlines(this.request.deadlines, placement.deadlines);
    const request: SettledRequest = { ...this.request, deadlines };
    const sandbox = new HeldSandbox({ request, attempt }, placement);
    this.sandbox = sandbox;

    const run = new RunEntries({ request, attempt }, sandbox);
    this.run = run;
    const report = await this.tryStage(
      () => this.untilAgentEnds(run, sandbox),
      () => run.position.turn,
    );
    this.report = report;
    sandbox.ended();
    if (report.ended === 'aborted') throw new RunAborted(report);

    await this.whilePaused();
    const said = `${report.ended} after ${report.turns} turns, ${report.tokens} tokens`;
    this.enter('evaluate', said);
    const { pausedMs } = this;
    const record = { startedAt, retried, initMs: placement.ms, runMs: run.timer.activeMs, pausedMs };
    const result = await this.tryStage(() =>
      evaluateStage(request, said).evaluate({
        ...{ request, attempt, report, record },
        placement: sandbox.placement,
      }),
    );
    this.end(result);
    return result;
  }

  /** Gets a sandbox. A pause gives the place in the queue for one up: a rollout that does not work takes no room. */
  private async place(): Promise<Placement> {
    const { request, attempt } = this;
    for (;;) {
      await this.whilePaused();
      this.enter('init', 'a sandbox is made and prepared');
      const waiting = new CancellationScope();
      this.waiting = waiting;
      try {
        return await waiting.run(() => initStage(request, { attempt }));
      } catch (error) {
        if (!isCancellation(error) || this.cancelled || !waiting.consideredCancelled) throw error;
      } finally {
        this.waiting = undefined;
      }
    }
  }

  /** Enters the run stage until the agent has come to an end; a pause or a deploy is none. */
  private async untilAgentEnds(run: RunEntries, sandbox: HeldSandbox): Promise<RunReport> {
    for (;;) {
      await this.whilePaused(run.lastEntry);
      if (sandbox.leaving) await this.leave(sandbox, run.lastEntry);
      if (sandbox.shelf) {
        this.enter('init', 'a sandbox is made for the workspace that was kept');
        await sandbox.unshelve(sandbox.shelf);
        continue; // it may have been told to pause again
      }
      if (this.stage !== 'run') this.enter('run', `the agent works on ${sandbox.placement.host}`);
      const report = await run.enter();
      if (report.ended !== 'paused' && report.ended !== 'shutdown') return report;
    }
  }

  /** Waits here for as long as the rollout is to be paused: it holds its sandbox, if it has one, and no slot. */
  private async whilePaused(entry?: number): Promise<void> {
    if (!this.pauseRequested) return;
    const { sandbox, request } = this;
    this.enter('paused', sandbox ? `its sandbox stays on ${sandbox.placement.host}` : 'not begun');
    const since = Date.now();
    const resumed = () => !this.pauseRequested;
    const goesOn = () => resumed() || sandbox?.leaving === true;
    const { pausedSandboxSeconds: held } = request;
    try {
      if (entry !== undefined && sandbox) {
        const isLong = held !== undefined && !(await condition(goesOn, `${held}s`));
        // One in which nothing runs is worth nothing to its host.
        if (isLong && sandbox.placement.backend !== 'none') await this.shelve(sandbox, entry);
        await condition(goesOn);
        if (sandbox.leaving) await this.leave(sandbox, entry);
      }
      await condition(resumed);
    } finally {
      this.pausedMs += Date.now() - since;
    }
  }

  /** Leaves a host: the attempt goes on elsewhere with what the store keeps, or another begins there. */
  private async leave(sandbox: HeldSandbox, entry: number): Promise<void> {
    const { host } = sandbox.placement;
    if (await this.shelve(sandbox, entry)) return;
    if (this.attempt < this.request.attempts.rollout) {
      const message = `${host} is being drained, and the workspace could not be taken along`;
      throw ApplicationFailure.nonRetryable(message, 'HostDrained' satisfies FailureType);
    }
    log.warn('it has no attempt left to begin elsewhere: it stays', { host });
    sandbox.stay();
  }

  private async shelve(sandbox: HeldSandbox, entry: number): Promise<boolean> {
    const shelf = await sandbox.shelve(entry);
    if (!shelf) return false;
    if (this.stage === 'paused')
      this.enter('paused', `its workspace is kept in the store (${shelf.bytes} bytes)`);
    if (shelf.oldestVersion !== undefined) {
      upsertSearchAttributes([{ key: ATTRIBUTES.policyVersion, value: shelf.oldestVersion }]);
    }
    return true;
  }

  /** Tries one stage again where the failure table says that it helps; what made progress counts anew. */
  private async tryStage<R>(stage: () => Promise<R>, progress: () => number = () => 0): Promise<R> {
    let furthest = progress();
    for (let tries = 1; ; tries++) {
      try {
        return await stage();
      } catch (error) {
        if (progress() > furthest) tries = 1;
        furthest = Math.max(furthest, progress());
        this.noteRetry(error, helpsInStage, tries < this.request.attempts.stage);
        await backOff(tries);
      }
    }
  }

  /** Records a failure that is to be tried again; throws every other. */
  private noteRetry(error: unknown, helps: (type: FailureType) => boolean, mayTry: boolean): StageFailure {
    if (this.cancelled || error instanceof RunAborted || this.stage === 'ended') throw error;
    const failure = this.failureOf(error, this.stage);
    if (!mayTry || !helps(failure.type)) throw error;
    this.retried.push(failure);
    log.warn('trying again', { ...failure });
    return failure;
  }

  private failureOf(error: unknown, stage: Stage | 'ended'): StageFailure {
    const { attempt } = this;
    const deadlines = settledDeadlines(this.request.deadlines, this.sandbox?.placement.deadlines);
    const request = { ...this.request, deadlines };
    return stageFailureOf(error, { request, attempt, stage: stage === 'ended' ? 'evaluate' : stage });
  }

  /** Everything that did not end in a grade: the sandbox is released, one terminal record is kept. */
  private async windUp(error: unknown): Promise<RolloutResult> {
    const stage = this.stage === 'ended' ? 'evaluate' : this.stage;
    if (error instanceof RunAborted) this.cancelled ??= { ...error.cancel, stage };
    const failure = this.cancelled ? null : this.failureOf(error, stage);
    await this.sandbox?.release(this.cancelled?.reason ?? 'failed');
    const result = await this.conclude(failure);
    this.end(result);
    if (result.outcome !== 'failed' || !result.failure) return result;
    const { type, message } = result.failure;
    throw ApplicationFailure.create({
      type,
      message: `${stage}: ${message}`,
      nonRetryable: true,
      details: [result],
    });
  }

  private async conclude(failure: StageFailure | null): Promise<RolloutResult> {
    const { request, attempt } = this;
    const result = ungradedRecord(this, workflowInfo().runId, failure, Date.now());
    try {
      return await concludeActivity(result.outcome).conclude({ request, attempt, result });
    } catch (error) {
      log.error('the store did not take the terminal record; this history has it', { error: String(error) });
      return { ...result, trajectory: null, policyVersions: this.report?.policyVersions ?? null };
    }
  }

  /** Ends the rollout; the run stage would hear of it with its next heartbeat, its host tells it now. */
  cancel(reason: CancelReason): void {
    if (this.cancelled || this.stage === 'ended') return;
    this.cancelled = { reason, stage: this.stage, at: Date.now() };
    this.scope.cancel();
    this.run?.abort(reason);
  }

  /** Takes effect where the rollout is at its next place to wait: the run stage is told to come to one. */
  pause(): void {
    if (this.pauseRequested || this.cancelled || this.stage === 'ended') return;
    this.pauseRequested = true;
    this.run?.pause();
    if (this.waiting && patched('a pause gives up init')) this.waiting.cancel();
  }

  resume(): void {
    this.pauseRequested = false;
  }

  /** Takes effect where it would pause. Before it has a sandbox, and once it is graded, it is on no host. */
  leaveHost(host: string): void {
    if (!this.cancelled && this.sandbox?.leave(host)) this.run?.pause();
  }

  stageStarted(signal: StageStartedSignal): void {
    if (signal.attempt === this.attempt) this.run?.started(signal);
  }

  stageWaits(signal: StageWaitsSignal): void {
    if (signal.attempt !== this.attempt || !this.run) return;
    this.run.waits(signal);
    setCurrentDetails(`**${this.stage}** (attempt ${this.attempt}): waits for an LLM server`);
  }

  /** A limit that holds over pauses, queues and retries. Requests from before it was there have none. */
  private limitWholeTime(): void {
    const seconds: number | undefined = this.request.deadlines.totalSeconds;
    if (seconds === undefined) return;
    sleep(`${seconds}s`).then(
      () => this.cancel('deadline'),
      () => log.debug('cancelled before its deadline'),
    );
  }

  private enter(stage: Stage, details: string): void {
    this.stage = stage;
    linesSay({ stage, attempt: this.attempt });
    const host = this.sandbox?.placement.host;
    // Init waits for a host with room, so lists say `queued` until the agent works: one write less for the
    // server. Histories of requests without a whole deadline are from before that.
    const { totalSeconds }: { totalSeconds?: number } = this.request.deadlines;
    const listed = stage === 'init' && totalSeconds !== undefined ? 'queued' : stage;
    if (listed !== this.listed) {
      upsertSearchAttributes([
        { key: ATTRIBUTES.stage, value: listed },
        ...(stage === 'run' && host ? [{ key: ATTRIBUTES.host, value: host }] : []),
      ]);
    }
    this.listed = listed;
    setCurrentDetails(`**${stage}** (attempt ${this.attempt}): ${details}`);
  }

  /** Its group hears of it; what was asked of it meanwhile is answered. */
  private async takeLeave(): Promise<void> {
    const { reportTo } = this.request;
    if (reportTo !== undefined && this.ended) await told(reportTo, ROLLOUT_ENDED_SIGNAL, endOf(this.ended));
    await condition(allHandlersFinished);
  }

  private end(result: RolloutResult): void {
    this.ended = result;
    this.stage = 'ended';
    upsertSearchAttributes([
      { key: ATTRIBUTES.stage, value: 'ended' },
      { key: ATTRIBUTES.outcome, value: result.outcome },
      ...(result.reward ? [{ key: ATTRIBUTES.reward, value: result.reward.total }] : []),
      ...(result.policyVersions ? [{ key: ATTRIBUTES.policyVersion, value: result.policyVersions[0] }] : []),
    ]);
    setCurrentDetails(summaryOf(result));
  }

  status(): RolloutStatus {
    return {
      stage: this.stage,
      attempt: this.attempt,
      host: this.sandbox?.shelf ? null : (this.sandbox?.placement.host ?? null),
      pauseRequested: this.pauseRequested,
      activeMs: this.run?.timer.activeMs ?? 0,
      cancelRequested: this.cancelled?.reason ?? null,
      retried: this.retried.map((failure) => failure.type),
    };
  }
}

/** Thrown within the workflow when the run stage was ended by a cancellation. */
class RunAborted extends Error {
  /** The host may have been told past this workflow. */
  readonly cancel: { readonly reason: CancelReason; readonly at: number };

  constructor({ cancel }: RunReport) {
    super('run aborted');
    this.cancel = { reason: cancel?.reason ?? 'user', at: Date.now() - (cancel?.ms ?? 0) };
  }
}

/** Waits 1, 2, 4, … s, at most 30 s, so that what failed has time to come back. */
function backOff(tries: number): Promise<void> {
  return sleep(Math.min(1000 * 2 ** (tries - 1), 30_000));
}
