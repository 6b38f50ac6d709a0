import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../contracts/failures.ts';

/** A part of the stack that runs. */
export interface Running {
  /** Resolves with a sentence when it has ended, for whatever reason. */
  readonly ended: Promise<string>;
  stop(): Promise<void>;
}

/** Restarts in a row, each within a minute of the one before, after which a part is given up. */
const MOST_RESTARTS = 5;
const STEADY_MS = 60_000;
/** Milliseconds before the first of them; each later one waits twice as long. */
const FIRST_WAIT_MS = 400;

/**
 * Keeps one part running: it is started again when it ends by itself. What it was doing goes on: that is
 * what the other parts and the workflows are made for.
 */
export class Keeper implements Running {
  readonly ended: Promise<string>;
  private readonly launch: () => Promise<Running>;
  private readonly report: (line: string) => void;
  private current: Running;
  private readonly firstWaitMs: number;
  private stopping = false;

  private constructor(
    launch: () => Promise<Running>,
    report: (line: string) => void,
    first: Running,
    firstWaitMs: number,
  ) {
    this.firstWaitMs = firstWaitMs;
    this.launch = launch;
    this.report = report;
    this.current = first;
    this.ended = this.watch();
  }

  /** Starts the part. @throws whatever the first start throws. */
  static async start(
    launch: () => Promise<Running>,
    report: (line: string) => void,
    firstWaitMs = FIRST_WAIT_MS,
  ): Promise<Keeper> {
    return new Keeper(launch, report, await launch(), firstWaitMs);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    await this.current.stop();
  }

  /** Resolves when the part is given up, or was told to stop. */
  private async watch(): Promise<string> {
    for (let restarts = 0; ; ) {
      const since = Date.now();
      let how = await this.current.ended;
      if (Date.now() - since > STEADY_MS) restarts = 0;
      // A part may end, and not start, for as long as another that it needs is being started again.
      for (let up = false; !up; ) {
        if (this.stopping) return how;
        if (++restarts > MOST_RESTARTS) return `${how}, ${restarts} times in a row`;
        this.report(`${how}; it is started again`);
        await delay(this.firstWaitMs * 2 ** (restarts - 1));
        if (this.stopping) return how;
        try {
          this.current = await this.launch();
          up = true;
        } catch (error) {
          how = messageOf(error);
        }
      }
      if (this.stopping) await this.current.stop();
    }
  }
}
