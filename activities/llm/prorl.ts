import { z } from 'zod';
import type { Generated, GenerateRequest } from '../../contracts/llm.ts';
import { TokenCollector } from './collector.ts';
import type { LlmDialect, ModelDescription, OnTokens } from './dialect.ts';
import { type HttpTimeouts, LlmHttp } from './http.ts';
import { LogprobScale } from './logprob-scale.ts';
import { read, TokenId } from './wire.ts';

const GENERATE = '/generate';

const Answer = z.object({
  response_ids: z.array(TokenId),
  logprobs: z.array(z.unknown()).nullish(),
});

/**
 * The token-level `/generate` that the rollout workers of ProRL Agent call on their trainer's servers. Its format
 * was read where it is called (openhands/llm/nvidia/qwen3.py): `{prompt_ids, top_p, seed, max_tokens,
 * temperature, …}` is answered by `{response_ids, logprobs}`. No server was at hand, so the tests answer so.
 * - Not a stream: an abort closes the connection and keeps no token.
 * - It names no reason for an end: a turn that ends with a token that was asked for is a stop, one that is as long
 *   as allowed a length.
 * - It tells nothing else: context limit and tokenizer are named with the server. That it is healthy is known from
 *   its accepting a connection.
 */
export class ProRlDialect implements LlmDialect {
  readonly name = 'prorl';
  readonly url: string;
  readonly codec = null;
  readonly control = null;
  readonly #http: LlmHttp;
  readonly #scale = new LogprobScale(
    (request, signal, onTokens) => this.#sample(request, signal, onTokens),
    'sample with temperature 1 and top-p 1',
  );

  constructor(url: string, timeouts: Partial<HttpTimeouts> = {}) {
    this.#http = new LlmHttp(url, timeouts);
    this.url = this.#http.url;
  }

  generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    return this.#scale.generate(request, signal, onTokens);
  }

  async describe(signal: AbortSignal): Promise<ModelDescription> {
    await this.health(signal);
    return {
      model: this.url,
      contextTokens: null,
      vocabularySize: null,
      parameterCount: null,
      fileBytes: null,
      format: null,
    };
  }

  async score(): Promise<null> {
    return null;
  }

  async encode(): Promise<null> {
    return null;
  }

  health(signal: AbortSignal): Promise<void> {
    return this.#http.reach('/', signal);
  }

  async load(): Promise<null> {
    return null;
  }

  get connections(): number {
    return this.#http.connections;
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #sample(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    const where = `${this.url}${GENERATE}`;
    const collector = new TokenCollector(where, onTokens);
    const body = {
      prompt_ids: request.promptIds,
      max_tokens: request.maxTokens,
      temperature: request.temperature,
      top_p: request.topP,
      top_k: -1,
      ...(request.seed === undefined ? {} : { seed: request.seed }),
      ...(request.stopIds ? { stop_token_ids: request.stopIds } : {}),
    };
    const answer = read(Answer, await this.#http.json(GENERATE, body, signal), where);
    collector.add(answer.response_ids, answer.logprobs);
    const last = collector.ids.at(-1);
    const stopped = last !== undefined && (request.stopIds?.includes(last) ?? false);
    if (!stopped && collector.ids.length < request.maxTokens) {
      throw collector.refused(
        `ended after ${collector.ids.length} of ${request.maxTokens} tokens without an end token`,
      );
    }
    return collector.finish(stopped ? 'stop' : 'length');
  }
}
