import { createHash } from 'node:crypto';
import path from 'node:path';
import { RolloutError } from '../../contracts/failures.ts';
import type { FinishReason, Generated, GenerateRequest } from '../../contracts/llm.ts';
import type { TextCodec } from './codec.ts';
import type { LlmDialect, ModelDescription, OnTokens, ServerLoad } from './dialect.ts';
import { type HttpTimeouts, LlmHttp, refuse } from './http.ts';
import * as wire from './llama-cpp-wire.ts';
import { type Candidate, drawAt, normalised, sampledDistribution } from './sampling.ts';
import { endsInsideCharacter } from './utf8.ts';
import { ErrorEvent, read } from './wire.ts';

/** A token of the vocabulary: its log-probability at temperature 1 and the bytes of its text. */
export interface VocabularyCandidate extends Candidate {
  /** Empty for special tokens. */
  readonly bytes: readonly number[];
}

/**
 * llama.cpp's HTTP server (`llama-server`, or the same server inside a Python package).
 *
 * What its source and a real server show, and what this class does about it:
 * - `logprob` is always of the model's distribution at temperature 1, whatever was sampled from, and summed
 *   in float32 (off by 1.5e-4 for 49,152 tokens). `post_sampling_probs` gives the probability within the
 *   distribution that was sampled from, correct to 1e-6: that one is used, except at temperature 0 where it
 *   is always 1 and the model's own log-probability is returned instead.
 * - The samplers run in the order given: temperature first, then top-p, as other servers do.
 * - The end-of-turn token comes as a token like any other, with its probability.
 * - A token that ends within a UTF-8 character is *held back*: a stream shows neither its id nor its
 *   probability, only a jump in `tokens_predicted`. See {@link LlamaCppDialect.generate}.
 * - It notices a closed connection only by writing to it. With `return_progress` it writes after each batch
 *   of the prompt, so an aborted request frees its slot within two batches, later on at the next token.
 *   Without, it reads the whole prompt first: 32 s for 2,500 tokens on two busy cores.
 */
export class LlamaCppDialect implements LlmDialect, TextCodec {
  readonly name = 'llama.cpp';
  readonly url: string;
  readonly codec = this;
  /** Its weights are those of one file: swapping is another server's job. */
  readonly control = null;
  readonly #http: LlmHttp;

  constructor(url: string, timeouts: Partial<HttpTimeouts> = {}) {
    this.#http = new LlmHttp(url, timeouts);
    this.url = this.#http.url;
  }

  /**
   * Streams a turn. When a token was held back, the stream is left there, what came after is dropped, and
   * that token is drawn here from the whole distribution, given that it is one that would be held back; the
   * following ones likewise until the character is complete, then the stream goes on. Each token is so
   * sampled from exactly the model's distribution, and none is guessed from text.
   */
  async generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    const ids: number[] = [];
    const logprobs: number[] = [];
    const keep = (id: number, logprob: number) => {
      ids.push(id);
      logprobs.push(logprob);
      onTokens?.([id], [logprob]);
    };
    let finish: FinishReason | 'held' = 'held';
    try {
      while (finish === 'held') {
        if (ids.length >= request.maxTokens) finish = 'length';
        else finish = await this.#stream(request, ids, keep, signal);
        if (finish === 'held') finish = await this.#character(request, ids, keep, signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
      finish = 'abort';
    }
    return { ids, logprobs, finish };
  }

  async describe(signal: AbortSignal): Promise<ModelDescription> {
    const props = read(wire.Props, await this.#http.json('/props', undefined, signal), `${this.url}/props`);
    const models = await this.#http.json('/v1/models', undefined, signal);
    const meta = read(wire.Models, models, `${this.url}/v1/models`).data[0]?.meta;
    return {
      // A path says where the model lies on the server's machine, not what it is.
      model: path.basename(props.model_alias || props.model_path || 'unknown', '.gguf'),
      contextTokens: props.default_generation_settings.n_ctx,
      vocabularySize: meta?.n_vocab ?? null,
      parameterCount: meta?.n_params ?? null,
      fileBytes: meta?.size ?? null,
      format: { template: props.chat_template, eosText: props.eos_token, bosText: props.bos_token },
    };
  }

  async tokenize(text: string, { parseSpecial }: { parseSpecial: boolean }, signal: AbortSignal) {
    const body = { content: text, add_special: false, parse_special: parseSpecial };
    const answer = await this.#http.json('/tokenize', body, signal);
    return read(wire.Tokenized, answer, `${this.url}/tokenize`).tokens;
  }

  encode(text: string, signal: AbortSignal): Promise<number[]> {
    return this.tokenize(text, { parseSpecial: true }, signal);
  }

  async detokenize(ids: readonly number[], signal: AbortSignal): Promise<string> {
    const answer = await this.#http.json('/detokenize', { tokens: ids }, signal);
    return read(wire.Detokenized, answer, `${this.url}/detokenize`).content;
  }

  async health(signal: AbortSignal): Promise<void> {
    const answer = await this.#http.json('/health', undefined, signal);
    read(wire.Health, answer, `${this.url}/health`);
  }

  /** One request of the whole vocabulary for each token. */
  async score(
    ids: readonly number[],
    from: number,
    sampling: { temperature: number; topP: number },
    signal: AbortSignal,
  ): Promise<number[]> {
    const scores: number[] = [];
    for (const [at, id] of ids.slice(from).entries()) {
      const own = await this.distribution(ids.slice(0, from + at), signal);
      const sampled = sampling.temperature === 0 ? own : sampledDistribution(own, sampling);
      scores.push(sampled.find((candidate) => candidate.id === id)?.logprob ?? -Infinity);
    }
    return scores;
  }

  /** Requests that wait for a slot are not told of. */
  async load(signal: AbortSignal): Promise<ServerLoad> {
    const answer = await this.#http.json('/slots', undefined, signal);
    const slots = read(wire.Slots, answer, `${this.url}/slots`);
    return { running: slots.filter((slot) => slot.is_processing).length, waiting: 0 };
  }

  /**
   * The model's distribution of the token after a prompt, at temperature 1, most probable first: the whole
   * vocabulary, or the `count` most probable tokens (then not adding up to 1).
   */
  async distribution(
    promptIds: readonly number[],
    signal: AbortSignal,
    count = Number.MAX_SAFE_INTEGER,
  ): Promise<VocabularyCandidate[]> {
    // The sampled token is of no interest, but must not be one that is held back with its probabilities.
    // The bias changes what is sampled, not the log-probabilities shown.
    const shown = read(
      wire.Tokenized,
      await this.#http.json('/tokenize', { content: 'a', add_special: false }, signal),
      `${this.url}/tokenize`,
    ).tokens[0];
    const answer = await this.#one(
      promptIds,
      { n_probs: Math.min(count, 1 << 20), logit_bias: [[shown, 1e5]] },
      signal,
    );
    const candidates = answer.completion_probabilities[0].top_logprobs;
    if (count < candidates.length) return candidates.slice(0, count);
    const exact = normalised(candidates);
    return candidates.map((candidate, index) => ({ ...candidate, ...exact[index] }));
  }

  get connections(): number {
    return this.#http.connections;
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  /** Tokens of one stream, until it ends or a token was held back. */
  async #stream(
    request: GenerateRequest,
    ids: readonly number[],
    keep: (id: number, logprob: number) => void,
    signal: AbortSignal,
  ): Promise<FinishReason | 'held'> {
    const where = `${this.url}/completion`;
    const before = ids.length;
    const nucleus = request.topP < 1 && request.temperature > 0;
    const seed = segmentSeed(request.seed, before);
    const body = {
      prompt: [...request.promptIds, ...ids],
      n_predict: request.maxTokens - before,
      temperature: request.temperature,
      top_p: request.topP,
      samplers: nucleus ? ['temperature', 'top_p'] : ['temperature'],
      n_probs: 1,
      post_sampling_probs: request.temperature > 0,
      return_tokens: true,
      return_progress: true,
      cache_prompt: true,
      stream: true,
      ...(seed === undefined ? {} : { seed }),
    };
    for await (const answer of this.#http.events('/completion', body, signal)) {
      const failed = ErrorEvent.safeParse(answer).data;
      if (failed) refuse(where, failed.error.code, failed.error.message);
      const event = read(wire.StreamEvent, answer, where);
      const received = ids.length - before;
      if (event.stop) {
        if (event.tokens_predicted > received) return 'held';
        if (event.tokens_predicted === received && event.stop_type === 'eos') return 'stop';
        if (event.tokens_predicted === received && event.stop_type === 'limit') return 'length';
        const what = `ended by "${event.stop_type}" with ${event.tokens_predicted} tokens, ${received} were sent`;
        throw new RolloutError('LlmInvalidAnswer', `${where} ${what}`);
      }
      if (event.prompt_progress !== undefined) continue;
      if (event.tokens_predicted > received + event.tokens.length) return 'held';
      const { tokens, completion_probabilities: probabilities } = event;
      if (probabilities.length !== tokens.length || probabilities.some(({ id }, i) => id !== tokens[i])) {
        const what = `sent ${tokens.length} tokens with ${probabilities.length} log-probabilities`;
        throw new RolloutError('LlmInvalidAnswer', `${where} ${what}`);
      }
      for (const token of probabilities) keep(token.id, logprobOf(token, request.temperature > 0, where));
    }
    throw new RolloutError('LlmUnreachable', `${where} cut the stream after ${ids.length} tokens`);
  }

  /** Draws tokens here until the character that a held-back token began is complete. */
  async #character(
    request: GenerateRequest,
    ids: readonly number[],
    keep: (id: number, logprob: number) => void,
    signal: AbortSignal,
  ): Promise<FinishReason | 'held'> {
    const tail: number[] = [];
    do {
      const vocabulary = await this.distribution([...request.promptIds, ...ids], signal);
      const bytesOf = new Map(vocabulary.map(({ id, bytes }) => [id, bytes]));
      const isHeld = ({ id }: Candidate) => endsInsideCharacter([...tail, ...(bytesOf.get(id) ?? [])]);
      const greedy = request.temperature === 0;
      const sampled = greedy ? vocabulary : sampledDistribution(vocabulary, request);
      const eligible = tail.length === 0 ? sampled.filter(isHeld) : sampled;
      const drawn = greedy ? eligible[0] : drawAt(eligible, uniform(request.seed, ids.length));
      if (drawn === undefined) {
        const what = `held back a token after ${ids.length}, but none that ends within a character is likely`;
        throw new RolloutError('LlmInvalidAnswer', `${this.url}/completion ${what}`);
      }
      keep(drawn.id, drawn.logprob);
      const bytes = bytesOf.get(drawn.id) ?? [];
      if (bytes.length === 0 && (await this.#endsTurn(request, ids, signal))) return 'stop';
      tail.push(...bytes);
    } while (ids.length < request.maxTokens && endsInsideCharacter(tail));
    return ids.length < request.maxTokens ? 'held' : 'length';
  }

  /** Whether the server would end the turn with the last token. */
  async #endsTurn(request: GenerateRequest, ids: readonly number[], signal: AbortSignal): Promise<boolean> {
    const prefix = [...request.promptIds, ...ids.slice(0, -1)];
    const answer = await this.#one(prefix, { n_probs: 1, logit_bias: [[ids.at(-1), 1e5]] }, signal);
    return answer.stop_type === 'eos';
  }

  /** Greedily samples one token. */
  async #one(prompt: readonly number[], options: object, signal: AbortSignal) {
    const body = {
      prompt,
      n_predict: 1,
      temperature: 0,
      samplers: ['temperature'],
      cache_prompt: true,
      ...options,
    };
    const answer = await this.#http.json('/completion', body, signal);
    return read(wire.DistributionAnswer, answer, `${this.url}/completion`);
  }
}

/** A log-probability that can be trained on. @throws LlmInvalidAnswer if there is none. */
function logprobOf(token: wire.TokenProbability, sampled: boolean, where: string): number {
  const logprob = sampled ? Math.log(token.prob ?? Number.NaN) : (token.logprob ?? Number.NaN);
  // Rounding may put a certain token a little above 1; -9999 and the lowest float stand for "none".
  if (Number.isFinite(logprob) && logprob <= 1e-3 && logprob > -9999) return Math.min(0, logprob);
  const value = sampled ? `probability ${token.prob}` : `log-probability ${token.logprob}`;
  throw new RolloutError('LlmInvalidAnswer', `${where} gave token ${token.id} the ${value}`);
}

/** The seed of the stream that begins after `position` tokens: the request's own for the first. */
function segmentSeed(seed: number | undefined, position: number): number | undefined {
  if (seed === undefined || position === 0) return seed;
  return Math.floor(uniform(seed, position - 0.5) * 0x7fff_ffff);
}

/** A number in [0, 1): of the seed and the position alone, or random without a seed. */
function uniform(seed: number | undefined, position: number): number {
  if (seed === undefined) return Math.random();
  return createHash('sha256').update(`${seed}/${position}`).digest().readUIntBE(0, 6) / 2 ** 48;
}
