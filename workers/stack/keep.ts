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

/**
 * Keeps one part running: it is started again when it ends by itself. What it was doing goes on: that is
 * what the other parts and the workflows are made for.
 */
export class Keeper implements Running {
  readonly ended: Promise<string>;
  private readonly launch: () => Promise<Running>;
  private readonly report: (line: string) => void;
  private current: Running;
  private stopping = false;

  private constructor(launch: () => Promise<Running>, report: (line: string) => void, first: Running) {
    this.launch = launch;
    this.report = report;
    this.current = first;
    this.ended = this.watch();
  }

  /** Starts the part. @throws whatever the first start throws. */
  static async start(launch: () => Promise<Running>, report: (line: string) => void): Promise<Keeper> {
    return new Keeper(launch, report, await launch());
  }

  async stop(): Promise<void> {
    this.stopping = true;
    await this.current.stop();
  }

  /** Resolves when the part is given up, or was told to stop. */
  private async watch(): Promise<string> {
    for (let restarts = 0; ; ) {
      const since = Date.now();
      const how = await this.current.ended;
      if (this.stopping) return how;
      restarts = Date.now() - since > STEADY_MS ? 1 : restarts + 1;
      if (restarts > MOST_RESTARTS) return `${how}, ${restarts} times in a row`;
      this.report(`${how}; it is started again`);
      await delay(200 * 2 ** restarts);
      try {
        if (!this.stopping) this.current = await this.launch();
      } catch (error) {
        return messageOf(error);
      }
      if (this.stopping) await this.current.stop();
    }
  }
}
