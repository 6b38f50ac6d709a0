import type { Generated, GenerateRequest } from '../../contracts/llm.ts';
import type { OnTokens } from './dialect.ts';
import { unsuitable } from './template.ts';

/** Likeliest tokens have a log-probability well below this at temperature 1, and above it once it is scaled. */
const CERTAIN = -0.1;
/** Servers take lower temperatures for "the likeliest token", whose log-probability says nothing. */
const COLD = 0.01;
const NARROW = 1e-6;
const PROBES = 4;

/** Sends a request as it is. */
type Sample = (request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens) => Promise<Generated>;

/**
 * What a server's log-probabilities are of: the distribution that it samples from, or the model's own. Servers
 * differ by kind, version and flags, and none says so. It is found out by sampling one token after single
 * tokens, cold or from a narrow nucleus: the likeliest comes, and in the distribution that was sampled from it is
 * all but certain.
 */
export class LogprobScale {
  readonly #sample: Sample;
  readonly #hint: string;
  #ofTemperature: Promise<boolean> | undefined;
  #ofTopP: Promise<boolean> | undefined;

  /** `hint` says what a person can do for log-probabilities of the distribution sampled from. */
  constructor(sample: Sample, hint: string) {
    this.#sample = sample;
    this.#hint = hint;
  }

  /**
   * Samples a turn whose log-probabilities are known to be of what it samples from; at temperature 0 they may be
   * the model's own. An abort while that is found out samples nothing.
   * @throws LlmUnsuitable if they would be of another distribution.
   */
  async generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    try {
      await this.#check(request, signal);
      return await this.#sample(request, signal, onTokens);
    } catch (error) {
      if (!signal.aborted) throw error;
      return { ids: [], logprobs: [], finish: 'abort' };
    }
  }

  async #check(request: GenerateRequest, signal: AbortSignal): Promise<void> {
    const { temperature, topP } = request;
    if (temperature === 0) return;
    if (temperature !== 1) {
      this.#ofTemperature ??= this.#scaled(request, { temperature: COLD, topP: 1 });
      if (!(await this.#known(this.#ofTemperature, signal))) {
        throw unsuitable(`its server's log-probabilities leave out the temperature: ${this.#hint}`);
      }
    }
    if (topP < 1) {
      this.#ofTopP ??= this.#scaled(request, { temperature: 1, topP: NARROW });
      if (!(await this.#known(this.#ofTopP, signal))) {
        throw unsuitable(`its server's log-probabilities leave out top-p: ${this.#hint}`);
      }
    }
  }

  /** An answer that failed is asked for again by the next request. */
  async #known(answer: Promise<boolean>, signal: AbortSignal): Promise<boolean> {
    answer.catch(() => {
      if (this.#ofTemperature === answer) this.#ofTemperature = undefined;
      if (this.#ofTopP === answer) this.#ofTopP = undefined;
    });
    signal.throwIfAborted();
    let stop = () => {};
    const aborted = new Promise<never>((_, reject) => {
      stop = () => reject(signal.reason);
      signal.addEventListener('abort', stop, { once: true });
    });
    try {
      return await Promise.race([answer, aborted]);
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  async #scaled(
    { promptIds }: GenerateRequest,
    settings: { temperature: number; topP: number },
  ): Promise<boolean> {
    // Other requests wait for the answer as well: it ends with none of them.
    const { signal } = new AbortController();
    const words = [...new Set(promptIds)];
    const step = Math.max(1, Math.floor(words.length / PROBES));
    const chosen = words.filter((_, at) => at % step === 0).slice(0, PROBES);
    const answers = await Promise.all(
      chosen.map((id) => this.#sample({ promptIds: [id], maxTokens: 1, seed: 1, ...settings }, signal)),
    );
    const logprobs = answers.flatMap((answer) => answer.logprobs.slice(0, 1)).sort((a, b) => a - b);
    return (logprobs[Math.floor(logprobs.length / 2)] ?? -Infinity) > CERTAIN;
  }
}
