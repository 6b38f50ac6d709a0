/** What a {@link PausableTimer} needs of its surroundings; a workflow's are deterministic under replay. */
export interface TimerSurroundings {
  /** Milliseconds of a clock that does not go back. */
  now(): number;
  /** Calls `expired` after `ms`, unless the function that it returns is called before. */
  startTimer(ms: number, expired: () => void): () => void;
}

/**
 * Counts active time against a budget and expires when that is used up. Only time between `start` and the
 * next `stop` counts: never a pause, never a queue.
 */
export class PausableTimer {
  private readonly budgetMs: number;
  private readonly surroundings: TimerSurroundings;
  private readonly onExpired: () => void;
  /** Active time of the periods that are over. */
  private spentMs = 0;
  private period: { readonly since: number; readonly stopTimer: () => void } | null = null;

  constructor(budgetMs: number, surroundings: TimerSurroundings, onExpired: () => void) {
    this.budgetMs = budgetMs;
    this.surroundings = surroundings;
    this.onExpired = onExpired;
  }

  get running(): boolean {
    return this.period !== null;
  }

  /** Milliseconds counted so far. */
  get activeMs(): number {
    return this.spentMs + (this.period ? this.surroundings.now() - this.period.since : 0);
  }

  /** Milliseconds that are left, never negative. */
  get remainingMs(): number {
    return Math.max(0, this.budgetMs - this.activeMs);
  }

  /** Begins to count, from `elapsedMs` ago. Started while it runs, it changes nothing. */
  start(elapsedMs = 0): void {
    if (this.period) return;
    const since = this.surroundings.now() - elapsedMs;
    const leftMs = Math.max(0, this.remainingMs - elapsedMs);
    this.period = { since, stopTimer: this.surroundings.startTimer(leftMs, this.onExpired) };
  }

  /**
   * Stops counting. `measuredMs`, where somebody closer to the work has measured the period, takes the place
   * of the time since `start`. Stopped while it does not run, it changes nothing.
   */
  stop(measuredMs?: number): void {
    const { period } = this;
    if (!period) return;
    this.spentMs += measuredMs ?? this.surroundings.now() - period.since;
    this.period = null;
    period.stopTimer();
  }

  /** Counts a period that was never started here, because it was over before. */
  add(measuredMs: number): void {
    this.spentMs += measuredMs;
  }
}
