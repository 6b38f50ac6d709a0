import { isCancellation, log } from '@temporalio/workflow';
import type { CancelReason } from '../contracts/request.ts';
import type { AttemptInput, Placement, ReleaseReport, Shelf } from '../contracts/stages.ts';
import { controlOf, initStage, shelveActivity } from './stages.ts';

/** The sandbox of one attempt: where it is, and how it is given back. */
export class HeldSandbox {
  placement: Placement;
  /** What is kept of it while a long pause has taken it. */
  shelf: Shelf | undefined;
  /** What its release said. */
  released: ReleaseReport | undefined;
  /** Its host is to be left. */
  leaving = false;
  /** It may be alive: nothing is known to have ended it. */
  private held = true;
  /** It cannot leave its host. */
  private stays = false;
  private readonly input: AttemptInput;

  constructor(input: AttemptInput, placement: Placement) {
    this.input = input;
    this.placement = placement;
  }

  /** The run stage has released it. */
  ended(): void {
    this.held = false;
  }

  /**
   * Ends it, whatever happened in it, unless that is done. For `7d` its host may come back: as long as the rollout is
   * open, and when that has ended the host clears what is its own.
   */
  async release(reason: CancelReason | 'failed', within: '60s' | '7d' = '60s'): Promise<void> {
    if (!this.held) return;
    this.held = false;
    const { input, placement } = this;
    try {
      const control = controlOf(placement, `release: ${reason}`, within);
      this.released = await control.release({ ...input, placement, reason });
      if (this.released.problem) log.warn('the ledger stays on the host', { ...this.released });
    } catch (error) {
      // Its host does not answer: it died and its sandboxes with it, or it clears them when it is back.
      log.warn('no host confirmed the release', { host: placement.host, error: String(error) });
    }
  }

  /** Its host is to be left, if it is this one. @returns whether that is news */
  leave(host: string): boolean {
    if (!this.held || this.leaving || this.stays || this.placement.host !== host) return false;
    this.leaving = true;
    return true;
  }

  /** It ends where it is: it cannot be taken along, and no other may take its place. */
  stay(): void {
    this.leaving = false;
    this.stays = true;
  }

  /**
   * Gives it back and keeps what is in it, after this entry into the run stage. Undefined where that cannot be: it
   * stays, or is found to be lost when its rollout goes on.
   */
  async shelve(entry: number): Promise<Shelf | undefined> {
    const { input, placement } = this;
    const leaving = this.leaving ? input.request : undefined;
    try {
      const shelf = await shelveActivity(placement, leaving).shelve({ ...input, placement, entry });
      if (!shelf) {
        log.warn('its workspace is too large, or has paths too long, to be kept: the sandbox stays');
        return undefined;
      }
      this.shelf = shelf;
      this.held = this.leaving = false;
      return shelf;
    } catch (error) {
      if (isCancellation(error)) throw error;
      log.warn('the sandbox could not be given back', { host: placement.host, error: String(error) });
      return undefined;
    }
  }

  /** Puts what was kept into a new one, on any host. */
  async unshelve(shelf: Shelf): Promise<void> {
    const { request, attempt } = this.input;
    this.placement = await initStage(request, { attempt, shelf });
    this.held = true;
    this.shelf = undefined;
  }
}
