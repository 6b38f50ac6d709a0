import { RolloutError } from '../../contracts/failures.ts';
import type { FinishReason, Generated, VersionSpan } from '../../contracts/llm.ts';
import type { OnTokens } from './dialect.ts';

/** Rounding may put a certain token a little above 1. */
const ROUNDING = 1e-3;
/** What servers write for a log-probability that they do not have. */
const NONE = -9999;

/**
 * Takes the tokens of one request as they arrive. What it has taken stands; what cannot be trained on is
 * refused before anything of it is taken.
 */
export class TokenCollector {
  readonly ids: number[] = [];
  readonly logprobs: number[] = [];
  readonly #where: string;
  readonly #onTokens: OnTokens | undefined;

  /** `where` is the address that refusals name. */
  constructor(where: string, onTokens?: OnTokens) {
    this.#where = where;
    this.#onTokens = onTokens;
  }

  /** @throws LlmInvalidAnswer if a log-probability is missing, too many, or none that a model can give. */
  add(ids: readonly number[], logprobs: readonly unknown[] | null | undefined): void {
    if (ids.length === 0) return;
    if (logprobs?.length !== ids.length) {
      throw this.refused(`sent ${ids.length} tokens with ${logprobs?.length ?? 0} log-probabilities`);
    }
    const checked = logprobs.map((logprob, at) => {
      if (typeof logprob === 'number' && logprob <= ROUNDING && logprob > NONE) return Math.min(0, logprob);
      throw this.refused(`gave token ${ids[at]} the log-probability ${String(logprob)}`);
    });
    this.ids.push(...ids);
    this.logprobs.push(...checked);
    this.#onTokens?.(ids, checked);
  }

  finish(finish: FinishReason, versions?: readonly VersionSpan[] | null): Generated {
    return { ids: this.ids, logprobs: this.logprobs, finish, ...(versions ? { versions } : {}) };
  }

  /** The failure of an answer that cannot be used. */
  refused(what: string): RolloutError {
    return new RolloutError('LlmInvalidAnswer', `${this.#where} ${what}`);
  }

  /** The failure of a stream that ended without saying why. */
  cut(): RolloutError {
    return new RolloutError(
      'LlmUnreachable',
      `${this.#where} cut the stream after ${this.ids.length} tokens`,
    );
  }
}
