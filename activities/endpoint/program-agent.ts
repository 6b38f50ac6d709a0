import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { RolloutError } from '../../contracts/failures.ts';
import type { SandboxInfo } from '../../contracts/sandbox.ts';
import type { LoopEnd } from '../agent/agent.ts';
import { endOfStop, type StopSwitch } from '../agent/stop.ts';
import type { AgentEndpoint } from '../handlers/handler.ts';
import { type BoundSandbox, bindSandbox } from '../sandbox/bound.ts';
import type { SandboxClient } from '../sandbox/client.ts';
import { Answers, type AnswersOptions } from './answers.ts';

const FORWARDER = readFileSync(new URL('./forwarder.py', import.meta.url), 'utf8');
const FORWARDER_MS = 30_000;
/** Milliseconds that a program has to end by itself once a limit has been reached. */
const LIMIT_GRACE_MS = 30_000;
/** By so much each call in a row that comes to nothing makes the next wait, up to the most. */
const SLOWER_MS = 50;
const SLOWEST_MS = 5_000;

/** Everything that a program is run with. */
export interface ProgramAgentOptions extends AnswersOptions {
  readonly sandboxes: SandboxClient;
  readonly info: SandboxInfo;
  readonly stop: StopSwitch;
  /** The handler's `run`, left when the signal aborts. */
  run(sandbox: BoundSandbox, endpoint: AgentEndpoint, signal: AbortSignal): Promise<string | null>;
}

/** How a program's run came to a stop, and its answer if it came to its end. */
export interface ProgramEnd {
  readonly end: LoopEnd;
  readonly answer: string | null;
}

/**
 * An agent with a loop of its own: a program in the sandbox, whose calls are answered here until it ends, is stopped,
 * or reaches a limit. Run again on the same ledger after a pause or a death, it goes on with the calls that wait.
 */
export class ProgramAgent {
  private readonly options: ProgramAgentOptions;
  private readonly answers: Answers;
  /** Aborted when this run is over: what it has under way is left, the program is not. */
  private readonly over = new AbortController();
  private readonly given = new Map<string, AbortController>();
  private fruitless = 0;
  private overLimit: NodeJS.Timeout | undefined;
  private endAtLimit!: () => void;

  constructor(options: ProgramAgentOptions) {
    this.options = options;
    this.answers = new Answers(options);
  }

  /** @throws RolloutError for everything that is neither the program's nor the policy's doing. */
  async run(): Promise<ProgramEnd> {
    const { sandboxes, info, stop, ledger, policy } = this.options;
    const last = ledger.records.at(-1);
    if (last?.kind === 'end') return { end: last.ended, answer: null };
    const model = policy.identity.name;
    const { socketPath } = await sandboxes.openEndpoint(
      info.sandboxId,
      { fence: info.fence, model },
      stop.signal,
    );
    const atLimit = new Promise<null>((resolve) => {
      this.endAtLimit = () => resolve(null);
    });
    const signal = AbortSignal.any([stop.generation, this.over.signal]);
    const sandbox = bindSandbox(sandboxes, info, signal);
    const program = this.options.run(sandbox, this.endpointIn(sandbox, socketPath), signal);
    const serving = this.serve(signal);
    try {
      const answer = await Promise.race([program, serving, atLimit]);
      if (stop.cause || stop.pausing) return this.stopped();
      return { end: this.answers.limit ?? 'finished', answer };
    } catch (error) {
      // A stop breaks off whatever is under way; what that throws then is only the echo of the stop.
      if (stop.cause || stop.pausing) return this.stopped();
      throw error;
    } finally {
      this.over.abort();
      clearTimeout(this.overLimit);
      program.catch(() => {}); // it had its say, or is left
      await serving.catch(() => {}); // likewise; what was sampled last is recorded then
    }
  }

  private stopped(): ProgramEnd {
    const { stop } = this.options;
    return { end: stop.cause ? endOfStop(stop.cause) : 'paused', answer: null };
  }

  /** Hears of calls and answers them; rejects when that fails, or `signal` aborts. */
  private async serve(signal: AbortSignal): Promise<never> {
    const { sandboxes, info } = this.options;
    const answering = new Set<Promise<void>>();
    let fail!: (error: unknown) => void;
    const failed = new Promise<never>((_, reject) => {
      fail = reject;
    });
    failed.catch(() => {}); // raced below
    try {
      for (;;) {
        const next = sandboxes.nextAtEndpoint(info.sandboxId, info.fence, signal);
        next.catch(() => {}); // raced below
        const event = await Promise.race([next, failed]);
        if (event?.event === 'gone') this.given.get(event.id)?.abort();
        if (event?.event !== 'call') continue;
        const { id, body } = event;
        this.given.set(id, new AbortController());
        const one = this.answer(id, body, signal)
          .catch(fail)
          .finally(() => answering.delete(one));
        answering.add(one);
      }
    } catch (error) {
      this.over.abort(error); // the program is left for the same reason
      throw error;
    } finally {
      await Promise.all(answering);
    }
  }

  private async answer(id: string, body: string, over: AbortSignal): Promise<void> {
    const { sandboxes, info } = this.options;
    const gone = this.given.get(id)?.signal as AbortSignal;
    const signal = AbortSignal.any([over, gone]);
    try {
      if (this.fruitless > 0) {
        await delay(Math.min(SLOWEST_MS, SLOWER_MS * this.fruitless), undefined, { signal }).catch(() => {});
      }
      if (signal.aborted) return;
      const answer = await this.answers.answer(id, body, signal);
      this.fruitless = answer?.status === 200 ? 0 : this.fruitless + 1;
      this.watchLimit();
      if (!answer || over.aborted) return; // given up; or the next run of this answers it
      const { sandboxId, fence } = info;
      const { delivered } = await sandboxes.answerAtEndpoint(sandboxId, { fence, id, ...answer }, over);
      if (!delivered) this.answers.notTaken(id);
    } catch (error) {
      if (!over.aborted) throw error;
    } finally {
      this.given.delete(id);
    }
  }

  /** A program that was told of a limit may still end in its own way, but not take for ever. */
  private watchLimit(): void {
    if (this.answers.limit === undefined) {
      clearTimeout(this.overLimit);
      this.overLimit = undefined;
    } else {
      this.overLimit ??= setTimeout(() => this.endAtLimit(), LIMIT_GRACE_MS);
    }
  }

  private endpointIn(sandbox: BoundSandbox, socketPath: string): AgentEndpoint {
    return {
      socketPath,
      baseUrl: async () => {
        // By a call id: the one that runs is found again, with the port that it has.
        const ran = await sandbox.shell('endpoint', {
          callId: 'endpoint',
          command: `python3 -c ${quoted(FORWARDER)} ${quoted(socketPath)}`,
          timeoutMs: FORWARDER_MS,
        });
        const port = /^[0-9]+$/m.exec(ran.output.text)?.[0];
        if (ran.exitCode === 0 && port !== undefined) return `http://127.0.0.1:${port}/v1`;
        const what = `the endpoint's forwarder, which needs a python3 in the sandbox: ${ran.output.text}`;
        throw new RolloutError('HandlerFailed', what);
      },
    };
  }
}

/** A word for bash. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
