import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  isCancellation,
  log,
  sleep,
  TimeoutFailure,
} from '@temporalio/workflow';
import type { SettledRequest } from '../contracts/deadlines.ts';
import type { AbortReason } from '../contracts/sandbox.ts';
import type { StageStartedSignal, StageWaitsSignal } from '../contracts/signals.ts';
import type { AttemptInput, Placement, RunPosition, RunReport } from '../contracts/stages.ts';
import { PausableTimer, type TimerSurroundings } from './pausable-timer.ts';
import { controlOf, runStage } from './stages.ts';

/**
 * The run stage of one attempt. An agent enters it as often as it takes: after a pause, a deploy or a lost
 * worker it goes on in the same sandbox, and only the time that it works counts towards the run deadline.
 */
export class RunEntries {
  /** Where the agent was last seen. */
  position: RunPosition = { turn: 0, tokens: 0, ms: 0 };
  readonly timer: PausableTimer;
  private readonly input: AttemptInput & { readonly request: SettledRequest };
  private readonly sandbox: { readonly placement: Placement };
  private entry = 0;
  private open = false;
  /** This entry has been told to pause, and its clock has stopped. */
  private pausing = false;
  /** This entry's time is in the timer already. */
  private counted = false;
  /** What of this entry's time is in the timer although it goes on: it waited for an LLM server. */
  private countedMs = 0;
  private lastWorkerDied = false;

  constructor(input: RunEntries['input'], sandbox: { readonly placement: Placement }) {
    this.input = input;
    this.sandbox = sandbox;
    const budgetMs = input.request.deadlines.runSeconds * 1000;
    this.timer = new PausableTimer(budgetMs, workflowTime, () => this.abort('runDeadline'));
  }

  /** The last entry into the stage. */
  get lastEntry(): number {
    return this.entry;
  }

  /** One entry, from its place in the host's queue to its report or its failure. */
  async enter(): Promise<RunReport> {
    const { input, timer } = this;
    const { placement } = this.sandbox;
    const entry = ++this.entry;
    const silentSeconds = this.lastWorkerDied ? input.request.heartbeatTimeoutSeconds : 0;
    this.open = true;
    this.pausing = this.counted = this.lastWorkerDied = false;
    this.countedMs = 0;
    const { remainingMs } = timer;
    try {
      const stage = runStage(input.request, placement, { remainingMs, silentSeconds });
      const report = await stage.run({ ...input, placement, entry, remainingMs });
      this.position = { turn: report.turns, tokens: report.tokens, ms: report.ms };
      this.count(report.ms);
      return report;
    } catch (error) {
      const position = lastPositionOf(error);
      if (position) this.position = position;
      this.lastWorkerDied = isHeartbeatTimeout(error);
      // One that died before its first heartbeat has worked for seconds at most.
      this.count(position?.ms ?? (this.lastWorkerDied ? 0 : undefined));
      throw error;
    } finally {
      this.open = false;
    }
  }

  /** A worker says that it has begun. Late, repeated and foreign words of that kind change nothing. */
  started({ entry, elapsedMs }: StageStartedSignal): void {
    if (this.open && entry === this.entry && !this.pausing) this.timer.start(elapsedMs);
  }

  /** A worker says that its agent waits: its clock stands until the worker says that it has begun again. */
  waits({ entry, elapsedMs }: StageWaitsSignal): void {
    if (!this.open || entry !== this.entry || this.pausing || !this.timer.running) return;
    this.countedMs += elapsedMs;
    this.timer.stop(elapsedMs);
  }

  /** Makes the agent give its slot back; its clock stops now. */
  pause(): void {
    if (!this.open || this.pausing) return;
    this.pausing = true;
    this.counted = this.timer.running;
    this.timer.stop();
    const { sandboxId } = this.sandbox.placement;
    // A host that stands still for a while must hear of it: nothing else tells it.
    this.command('pause', '10m', (control) => control.pause({ sandboxId, entry: this.entry }));
  }

  /** Stops the agent at once, unless it is out of the run stage. */
  abort(reason: AbortReason): void {
    if (!this.open) return;
    const { sandboxId } = this.sandbox.placement;
    this.command(`abort: ${reason}`, '60s', (control) => control.abort({ sandboxId, reason }));
  }

  /** Goes to the host over its control queue, past everything that waits; heartbeats would be slower. */
  private command(
    summary: string,
    within: '60s' | '10m',
    give: (control: ReturnType<typeof controlOf>) => Promise<void>,
  ): void {
    const control = controlOf(this.sandbox.placement, summary, within);
    CancellationScope.nonCancellable(() => give(control)).catch((error) =>
      log.warn('the host did not take a command', { summary, error: String(error) }),
    );
  }

  /** Puts this entry's time into the timer: as measured by its worker, else as it passed here. */
  private count(measuredMs: number | undefined): void {
    if (this.counted) return;
    this.counted = true;
    const restMs = measuredMs === undefined ? undefined : Math.max(0, measuredMs - this.countedMs);
    if (this.timer.running) this.timer.stop(restMs);
    else this.timer.add(restMs ?? 0);
  }
}

const workflowTime: TimerSurroundings = {
  now: () => Date.now(),
  startTimer(ms, expired) {
    const scope = new CancellationScope();
    scope
      .run(() => sleep(ms))
      .then(expired)
      .catch((error) => {
        if (!isCancellation(error)) throw error; // stopped in time is no failure
      });
    return () => scope.cancel();
  },
};

/** The agent's place and time that a dead or failed run left: its last heartbeat, or its failure's details. */
function lastPositionOf(error: unknown): RunPosition | undefined {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  if (cause instanceof TimeoutFailure) return cause.lastHeartbeatDetails as RunPosition | undefined;
  if (cause instanceof ApplicationFailure) return cause.details?.[0] as RunPosition | undefined;
  return undefined;
}

function isHeartbeatTimeout(error: unknown): boolean {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  return cause instanceof TimeoutFailure && cause.timeoutType === 'HEARTBEAT';
}
