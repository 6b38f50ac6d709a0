import { RolloutError } from '../../contracts/failures.ts';
import type { WatchEvent } from '../../contracts/sandbox.ts';
import { type Watcher, Watchers } from './watchers.ts';

/** Who holds a sandbox: the newest fence and the entry it is for, who watches, and what those are told. */
export class Holder {
  private readonly sandboxId: string;
  private readonly watchers = new Watchers();
  private fence = 0;
  /** The holder's entry into the run stage, and the last one that is to pause. */
  private entry = 0;
  private pausedEntry = 0;
  private heard = performance.now();
  /** What a new watcher is told at once: the sandbox has been aborted or has ended. */
  private told: WatchEvent | null = null;

  constructor(sandboxId: string) {
    this.sandboxId = sandboxId;
  }

  /** Somebody waits to hear what becomes of the sandbox. */
  get isThere(): boolean {
    return this.watchers.size > 0;
  }

  get lastHeard(): number {
    if (this.isThere) this.heard = performance.now();
    return this.heard;
  }

  /** What became of the sandbox; null: it is as it was. */
  get final(): WatchEvent | null {
    return this.told;
  }

  /**
   * A new holder; all before are told and refused from then on.
   * @throws RolloutError FenceRefused for an entry into the run stage that has been given up: a later one has
   * begun, and a worker that stood still in between has just woken up. Init is entry 0.
   */
  takeOver(fence: number, entry: number): void {
    this.checkAlive();
    if (entry < this.entry) {
      const late = `entry ${this.entry} into its run stage has begun`;
      throw new RolloutError('FenceRefused', `entry ${entry} takes no sandbox over: ${late}`);
    }
    this.heard = performance.now();
    this.fence = fence;
    this.entry = entry;
    this.watchers.supersede(fence);
  }

  /** @throws RolloutError FenceRefused for any fence but the newest, SandboxLost */
  check(fence: number): void {
    this.checkAlive();
    if (fence === this.fence) {
      this.heard = performance.now();
      return;
    }
    throw new RolloutError('FenceRefused', `fence ${fence} is not the newest of sandbox ${this.sandboxId}`);
  }

  /** @throws RolloutError SandboxLost */
  checkAlive(): void {
    const { told } = this;
    if (told === null || told.event === 'abort') return;
    const how = told.event === 'lost' ? `died: ${told.message}` : `was ${told.event}`;
    throw new RolloutError('SandboxLost', `sandbox ${this.sandboxId} ${how}`);
  }

  /**
   * What becomes of the sandbox or of this fence; null when `signal` is aborted first.
   * @throws RolloutError FenceRefused for one that was never issued
   */
  watch(who: Watcher, signal: AbortSignal): Promise<WatchEvent | null> {
    if (this.told) return Promise.resolve(this.told);
    if (who.fence < this.fence) return Promise.resolve({ event: 'superseded' });
    if (who.fence > this.fence) this.check(who.fence);
    if (this.toPause && !who.knowsPause) return Promise.resolve({ event: 'pause' });
    return this.watchers.wait(who, signal).finally(() => {
      this.heard = performance.now();
    });
  }

  /** What watchers are told from now on; {@link tell} those who watch already. */
  settle(event: WatchEvent): void {
    this.told = event;
  }

  tell(): void {
    if (this.told) this.watchers.tellAll(this.told);
  }

  /** Tells it to give the sandbox back, if its entry is this one or an earlier one. */
  pause(entry: number): void {
    this.pausedEntry = Math.max(this.pausedEntry, entry);
    if (this.toPause) this.watchers.tellPause();
  }

  private get toPause(): boolean {
    return this.entry > 0 && this.entry <= this.pausedEntry;
  }
}
