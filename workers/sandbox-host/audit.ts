import type { Logger } from 'pino';
import { messageOf } from '../../contracts/failures.ts';
import { removeOldLedgers } from './ledger/retention.ts';

/** What is known of a workflow run: `closed` also if another run or nothing stands in its place. */
export type RolloutState = 'open' | 'closed' | 'unknown';

/** How long things may stay that nobody asks about. */
export interface AuditTimes {
  /** Milliseconds without a word about a sandbox before its rollout is looked up. */
  readonly silentMs: number;
  /** Milliseconds that a silent sandbox is kept while its rollout cannot be looked up. */
  readonly unknownMs: number;
  /** Milliseconds that ledgers are kept after their last record when their sandbox is gone. */
  readonly ledgerMs: number;
}

export const AUDIT_TIMES: AuditTimes = {
  silentMs: 15 * 60_000,
  unknownMs: 24 * 3_600_000,
  ledgerMs: 7 * 24 * 3_600_000,
};

/** Milliseconds between two looks at all ledgers: a week of them is many thousands of folders. */
const LEDGERS_EVERY_MS = 3_600_000;

/** What the audit needs to know of a sandbox. */
export interface Leased {
  readonly sandboxId: string;
  readonly rolloutId: string;
  readonly attempt: { readonly workflowRunId: string };
  /** When somebody last asked for something of it, or stopped watching it (performance.now()); now if watched. */
  readonly lastHeard: number;
}

export interface AuditOptions {
  /** Asks who knows best. A failure to find out is `unknown`, or is thrown. */
  readonly isOpen: (rolloutId: string, workflowRunId: string) => Promise<RolloutState>;
  readonly times: AuditTimes;
  readonly sandboxes: () => readonly Leased[];
  readonly reap: (sandboxId: string) => Promise<unknown>;
  readonly ledgersDir: string;
  readonly logger: Pick<Logger, 'info' | 'warn'>;
}

/**
 * Finds sandboxes that their rollouts have left behind. A sandbox is held by a lease that every call renews;
 * when it has run out, the rollout is looked up, and the sandbox is reaped only if that is over. A paused
 * rollout, or a server that cannot be reached for hours, costs none.
 */
export class Audit {
  private readonly options: AuditOptions;
  /** When a rollout was last found to be open. */
  private readonly open = new Map<string, number>();
  private timer: NodeJS.Timeout | undefined;
  /** When ledgers are looked at next (performance.now()). */
  private ledgersAt = 0;
  /** Sandboxes that it has reaped. */
  reaped = 0;

  constructor(options: AuditOptions) {
    this.options = options;
  }

  start(): void {
    const every = Math.max(1000, Math.min(this.options.times.silentMs / 4, 60_000));
    this.timer = setTimeout(() => void this.look().finally(() => this.timer && this.start()), every);
    this.timer.unref();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** One round over all sandboxes, and once in a while ledgers. Never rejects: what failed is tried in the next round. */
  async look(): Promise<void> {
    const { sandboxes, logger } = this.options;
    const all = sandboxes();
    const ids = new Set(all.map(({ sandboxId }) => sandboxId));
    for (const id of this.open.keys()) if (!ids.has(id)) this.open.delete(id);
    for (const one of all) {
      try {
        await this.lookAt(one);
      } catch (error) {
        logger.warn({ sandbox: one.sandboxId, problem: messageOf(error) }, 'a sandbox could not be audited');
      }
    }
    if (performance.now() < this.ledgersAt) return;
    this.ledgersAt = performance.now() + LEDGERS_EVERY_MS;
    await this.removeLedgers();
  }

  /** Removes ledgers whose time is over. Never rejects. */
  async removeLedgers(): Promise<void> {
    const { sandboxes, times, ledgersDir, logger } = this.options;
    const live = new Set(sandboxes().map((one) => one.rolloutId));
    try {
      const removed = await removeOldLedgers(ledgersDir, times.ledgerMs, live);
      if (removed > 0) logger.info({ rollouts: removed }, 'removed ledgers whose time is over');
    } catch (error) {
      logger.warn({ problem: messageOf(error) }, 'old ledgers could not be removed');
    }
  }

  private async lookAt(sandbox: Leased): Promise<void> {
    const { times, logger, reap } = this.options;
    const { sandboxId, rolloutId } = sandbox;
    const { workflowRunId } = sandbox.attempt;
    const now = performance.now();
    const heard = Math.max(sandbox.lastHeard, this.open.get(sandboxId) ?? 0);
    if (now - heard < times.silentMs) return;
    const state = await this.lookUp(rolloutId, workflowRunId);
    if (state === 'open') {
      this.open.set(sandboxId, now);
      return;
    }
    // Somebody may have taken it up while it was looked up.
    if (sandbox.lastHeard > now) return;
    if (state === 'unknown' && now - heard < times.unknownMs) return;
    logger.warn({ sandbox: sandboxId, rollout: rolloutId, run: workflowRunId, state }, 'reaping a sandbox');
    await reap(sandboxId);
    this.reaped++;
  }

  private async lookUp(rolloutId: string, workflowRunId: string): Promise<RolloutState> {
    try {
      return await this.options.isOpen(rolloutId, workflowRunId);
    } catch (error) {
      this.options.logger.warn(
        { rollout: rolloutId, problem: messageOf(error) },
        'a rollout was not looked up',
      );
      return 'unknown';
    }
  }
}
