import path from 'node:path';
import { z } from 'zod';
import { readIfThere, writeWhole } from '../../activities/trajectory/whole-files.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';

const State = z.object({
  running: z.boolean(),
  /** Version of the weights on servers that are added: each clearing makes way for the next. */
  policyVersion: z.int().min(0),
});
type State = z.infer<typeof State>;

/**
 * What `/start`, `/stop` and `/clear_llm_server` leave behind. It lies in the store, so that a gateway that was
 * started anew, and every other one, answers as the one before.
 */
export class ProcessSwitch {
  readonly #file: string;

  /** @param folder of the store */
  constructor(folder: string) {
    this.#file = path.join(folder, 'process.json');
  }

  /** Stopped as long as nobody has started it. @throws RolloutError StoreFailed, StoreCorrupt */
  async state(): Promise<State> {
    const text = await readIfThere(this.#file);
    if (text === undefined) return { running: false, policyVersion: 0 };
    try {
      return State.parse(JSON.parse(text));
    } catch (error) {
      throw new RolloutError('StoreCorrupt', `${this.#file}: ${messageOf(error)}`, { cause: error });
    }
  }

  /** @throws RolloutError StoreFailed, StoreCorrupt */
  async change(change: Partial<State>): Promise<void> {
    await writeWhole(this.#file, JSON.stringify({ ...(await this.state()), ...change }));
  }
}
