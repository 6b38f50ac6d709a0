import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
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
    try {
      return State.parse(JSON.parse(await readFile(this.#file, 'utf8')));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { running: false, policyVersion: 0 };
      const type =
        error instanceof SyntaxError || error instanceof z.ZodError ? 'StoreCorrupt' : 'StoreFailed';
      throw new RolloutError(type, `${this.#file}: ${messageOf(error)}`, { cause: error });
    }
  }

  /** @throws RolloutError StoreFailed, StoreCorrupt */
  async change(change: Partial<State>): Promise<void> {
    const state = { ...(await this.state()), ...change };
    const draft = `${this.#file}.${process.pid}.draft`;
    try {
      await mkdir(path.dirname(this.#file), { recursive: true });
      await writeFile(draft, JSON.stringify(state), { mode: 0o600 });
      await rename(draft, this.#file);
    } catch (error) {
      throw new RolloutError('StoreFailed', `cannot write ${this.#file}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
}
