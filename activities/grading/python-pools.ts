import { PythonPool } from './python-pool.ts';

/** Seconds of processor time that a request may take if nothing else is said. */
const USUAL_SECONDS = 10;

/** Programs that answer requests: what graders ask that only Python has a library for. */
export interface PythonPrograms {
  /**
   * What `program` answers to `request`, in the Python of the set-up.
   * @throws RolloutError GraderFailed if it raises, dies or takes more than `seconds` (10) of processor time
   */
  ask(
    program: URL,
    request: object,
    options?: { readonly seconds?: number; readonly signal?: AbortSignal },
  ): Promise<unknown>;
  /** Ends what is idle. */
  close?(): Promise<void>;
}

/** A pool of warm workers for each program. */
export class PythonPools implements PythonPrograms {
  private readonly python: () => string;
  private readonly pools = new Map<string, PythonPool>();

  /** `python`: says the interpreter's path, once the first program is asked. */
  constructor(python: () => string) {
    this.python = python;
  }

  ask: PythonPrograms['ask'] = async (program, request, { seconds = USUAL_SECONDS, signal } = {}) => {
    let pool = this.pools.get(program.href);
    if (!pool) {
      pool = new PythonPool({ python: this.python(), program });
      this.pools.set(program.href, pool);
    }
    return pool.ask(request, seconds, signal);
  };

  /** Ends what is idle; the pools can be asked again. */
  async close(): Promise<void> {
    await Promise.all([...this.pools.values()].map((pool) => pool.close()));
  }
}
