/** What a {@link RunClock} measures by, and whom it tells. */
export interface RunClockOptions {
  /** Milliseconds of work after which the time is over. */
  readonly budgetMs: number;
  /** Milliseconds of work after which the workflow is told of the first of it: each signal costs it a task. */
  readonly announceWorkMs: number;
  /** Milliseconds of waiting that the workflow may take for work. */
  readonly announceWaitMs: number;
  /** Milliseconds of waiting in all that one entry into the run stage may take. */
  readonly mostWaitingMs: number;
  expired(): void;
  waitedEnough(): void;
  /**
   * The workflow's clock is to run, or to stand; `workedMs` is what was worked since it was last told to stand, or
   * since the beginning.
   */
  announce(runs: boolean, workedMs: number): void;
}

/**
 * The time for which a run has worked: waiting for an LLM server does not count. It holds while Temporal is away. The
 * workflow, which keeps the same time, is told of long waits, and of short ones once they add up.
 */
export class RunClock {
  readonly #options: RunClockOptions;
  /** Work before `#since`, and waiting before it. */
  #workedMs = 0;
  #waitedMs = 0;
  #since = performance.now();
  /** How many of those by whom the run works wait. */
  #waiting = 0;
  /** Whether the workflow's clock runs, as far as it was told. */
  #runsThere: boolean | undefined;
  /** Work that the workflow has counted, and waiting that it takes for work. */
  #countedThereMs = 0;
  #mistakenThereMs = 0;
  #end: NodeJS.Timeout | undefined;
  #announcement: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(options: RunClockOptions) {
    this.#options = options;
    this.#work(0);
  }

  get workedMs(): number {
    return this.#workedMs + (this.#waiting > 0 || this.#stopped ? 0 : performance.now() - this.#since);
  }

  /** One of those by whom the run works begins to wait, or goes on. The clock stands while any waits. */
  wait(does: boolean): void {
    if (this.#stopped) return;
    const before = this.#waiting;
    this.#waiting += does ? 1 : -1;
    const passedMs = performance.now() - this.#since;
    if (before === 0 && does) this.#stand(passedMs);
    if (this.#waiting === 0 && !does) this.#work(passedMs);
  }

  /** The run is to end, or to pause: nothing is counted, ended or announced any more, whatever still has to finish. */
  stop(): void {
    this.#workedMs = this.workedMs;
    this.#stopped = true;
    this.#disarm();
  }

  #disarm(): void {
    clearTimeout(this.#end);
    clearTimeout(this.#announcement);
  }

  #stand(workedMs: number): void {
    const { announceWaitMs, mostWaitingMs, waitedEnough } = this.#options;
    this.#disarm();
    this.#workedMs += workedMs;
    this.#since = performance.now();
    this.#end = setTimeout(waitedEnough, Math.max(0, mostWaitingMs - this.#waitedMs));
    if (this.#runsThere) this.#announcement = setTimeout(() => this.#tell(false), announceWaitMs);
  }

  #work(waitedMs: number): void {
    const { budgetMs, announceWorkMs, announceWaitMs, expired } = this.#options;
    this.#disarm();
    this.#waitedMs += waitedMs;
    this.#since = performance.now();
    this.#end = setTimeout(expired, Math.max(0, budgetMs - this.#workedMs));
    if (this.#runsThere) {
      this.#mistakenThereMs += waitedMs;
      if (this.#mistakenThereMs > announceWaitMs) this.#tell(false);
    }
    if (this.#runsThere === false) this.#tell(true);
    if (this.#runsThere === undefined) {
      this.#announcement = setTimeout(() => this.#tell(true), announceWorkMs);
    }
  }

  #tell(runs: boolean): void {
    const { workedMs } = this;
    this.#options.announce(runs, workedMs - this.#countedThereMs);
    this.#runsThere = runs;
    if (runs) return;
    this.#countedThereMs = workedMs;
    this.#mistakenThereMs = 0;
  }
}
