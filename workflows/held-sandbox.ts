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
  /** It may be alive: nothing is known to have ended it. */
  private held = true;
  private readonly input: AttemptInput;

  constructor(input: AttemptInput, placement: Placement) {
    this.input = input;
    this.placement = placement;
  }

  /** The run stage has released it. */
  ended(): void {
    this.held = false;
  }

  /** Ends it, whatever happened in it, unless that is done. */
  async release(reason: CancelReason | 'failed'): Promise<void> {
    if (!this.held) return;
    this.held = false;
    const { input, placement } = this;
    try {
      const control = controlOf(placement, `release: ${reason}`);
      this.released = await control.release({ ...input, placement, reason });
      if (this.released.problem) log.warn('the ledger stays on the host', { ...this.released });
    } catch (error) {
      // Its host does not answer: it died and its sandboxes with it, or it clears them when it is back.
      log.warn('no host confirmed the release', { host: placement.host, error: String(error) });
    }
  }

  /**
   * Gives it back for the rest of a pause that came after this entry into the run stage. Undefined where that cannot be:
   * it stays, or is found to be lost at resume.
   */
  async shelve(entry: number): Promise<Shelf | undefined> {
    const { input, placement } = this;
    if (placement.backend === 'none') return undefined;
    try {
      const shelf = await shelveActivity(placement).shelve({ ...input, placement, entry });
      if (!shelf) {
        log.warn('its workspace is too large, or has paths too long, to be kept: the sandbox stays');
        return undefined;
      }
      this.shelf = shelf;
      this.held = false;
      return shelf;
    } catch (error) {
      if (isCancellation(error)) throw error;
      log.warn('the sandbox could not be given back', { host: placement.host, error: String(error) });
      return undefined;
    }
  }

  /** Puts what was kept into a new one, on any host. */
  async unshelve(shelf: Shelf): Promise<void> {
    this.placement = await initStage(this.input.request).init({ ...this.input, shelf });
    this.held = true;
    this.shelf = undefined;
  }
}
