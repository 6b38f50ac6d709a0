import { setTimeout as delay } from 'node:timers/promises';
import type { ActivitySlotInfo, CustomSlotSupplier, SlotPermit } from '@temporalio/worker';
import type { SandboxClient } from '../activities/sandbox/client.ts';

/** How often a full host is asked again. Over its Unix socket one question takes half a millisecond. */
const ASK_AGAIN_MS = 100;

/** What admission goes by. */
export interface AdmissionOptions {
  readonly sandboxes: Pick<SandboxClient, 'stats'>;
  readonly disk: { hasRoom(): Promise<boolean> };
  /** Init stages at once. */
  readonly slots: number;
  /** Agents that there may be for another reason than room; as many as there is room for if absent. */
  readonly most?: () => number;
}

/**
 * Hands out an init slot only while the host has room for one more sandbox, and its disks for what that writes, so that a
 * full cluster leaves work in Temporal and does not start what it cannot run. A permit stands for one sandbox to be made,
 * until it is; the host counts those that exist, also those that are still prepared.
 */
export class SandboxAdmission implements CustomSlotSupplier<ActivitySlotInfo> {
  readonly type = 'custom';
  private permits = 0;
  /** Permits ever given, and those of them that stand for no sandbox to be made any more. */
  private given = 0;
  private settled = 0;
  /** Permits in use whose sandbox has been made. */
  private made = 0;
  private readonly options: AdmissionOptions;

  constructor(options: AdmissionOptions) {
    this.options = options;
  }

  async reserveSlot(_context: unknown, signal: AbortSignal): Promise<SlotPermit> {
    while (!(await this.hasRoom())) {
      await delay(ASK_AGAIN_MS, undefined, { signal }).catch(() => {
        throw signal.reason; // itself: everything else the SDK logs as an error
      });
    }
    return {};
  }

  /** Takes the permit in the same step as the last look at the count: reservations run side by side. */
  private async hasRoom(): Promise<boolean> {
    const { sandboxes, disk, slots, most } = this.options;
    if (this.permits >= slots) return false;
    this.permits++;
    this.given++;
    // As it was before the host was asked: what is made meanwhile may not be in its answer.
    const { settled } = this;
    // An unreachable host has no room; the init worker waits for it rather than fail rollouts.
    const [stats, hasDisk] = await Promise.all([sandboxes.stats().catch(() => undefined), disk.hasRoom()]);
    const toBeMade = this.given - settled;
    const room = Math.min(stats?.capacity ?? 0, most?.() ?? Number.POSITIVE_INFINITY);
    if (hasDisk && stats && stats.sandboxes + toBeMade <= room) return true;
    this.permits--;
    this.given--;
    return false;
  }

  /** Sandboxes of agents that there are and that are to be made; undefined while the host does not say. */
  async agents(): Promise<number | undefined> {
    const stats = await this.options.sandboxes.stats().catch(() => undefined);
    return stats && stats.sandboxes + this.given - this.settled;
  }

  tryReserveSlot(): SlotPermit | null {
    return null; // eager tasks would pass by the count, which takes a question to the host
  }

  markSlotUsed(): void {}

  /** The host counts the sandbox of a permit in use. */
  sandboxMade(): void {
    this.made++;
    this.settled++;
  }

  /** A task that failed before it had a sandbox stands for one as long as another that has one works. */
  releaseSlot({ slotInfo }: { readonly slotInfo?: ActivitySlotInfo }): void {
    this.permits--;
    if (slotInfo && this.made > 0) this.made--;
    else this.settled++;
  }
}
