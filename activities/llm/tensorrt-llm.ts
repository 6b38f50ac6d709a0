import { z } from 'zod';
import type { FinishReason, Generated, GenerateRequest } from '../../contracts/llm.ts';
import { TokenCollector } from './collector.ts';
import { CompletionEvent } from './completions-wire.ts';
import type { LlmDialect, ModelDescription, OnTokens, ServerLoad } from './dialect.ts';
import { type HttpTimeouts, LlmHttp } from './http.ts';
import { LogprobScale } from './logprob-scale.ts';
import { describeFirstModel } from './models.ts';
import { followStream } from './stream.ts';
import { read } from './wire.ts';

const COMPLETIONS = '/v1/completions';

/** GET /metrics: figures of the engine's last steps, oldest first; none since the last call is an empty list. */
const Steps = z.array(
  z.object({ numActiveRequests: z.int().min(0), numQueuedRequests: z.int().min(0).default(0) }),
);

/**
 * TensorRT-LLM (`trtllm-serve`). Its formats were read in its sources (serve/openai_protocol.py,
 * serve/postprocess_handlers.py, main branch of late 2026); no server was at hand, so the tests answer as those
 * sources do.
 * - It sends token ids where it is told not to detokenise, and log-probabilities for `logprobs: 1`. Those that it
 *   does not have are −9999, which is refused.
 * - It cuts stop tokens off unless told to keep them; a turn that ends without one of the tokens that were asked
 *   for is refused, since the token that ended it can't be trained on.
 * - It tells neither its context limit nor its tokenizer: both are named with the server.
 * - It ends a request whose connection is closed. Weights can't be swapped by its HTTP interface.
 */
export class TensorRtLlmDialect implements LlmDialect {
  readonly name = 'tensorrt-llm';
  readonly url: string;
  readonly codec = null;
  readonly control = null;
  readonly #http: LlmHttp;
  readonly #scale = new LogprobScale(
    (request, signal, onTokens) => this.#sample(request, signal, onTokens),
    'sample with temperature 1 and top-p 1',
  );
  #model: string | undefined;

  constructor(url: string, timeouts: Partial<HttpTimeouts> = {}) {
    this.#http = new LlmHttp(url, timeouts);
    this.url = this.#http.url;
  }

  generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    return this.#scale.generate(request, signal, onTokens);
  }

  async describe(signal: AbortSignal): Promise<ModelDescription> {
    const description = await describeFirstModel(this.#http, signal);
    this.#model = description.model;
    return description;
  }

  async score(): Promise<null> {
    return null;
  }

  async encode(): Promise<null> {
    return null;
  }

  async health(signal: AbortSignal): Promise<void> {
    await this.#http.text('/health', undefined, signal);
  }

  async load(signal: AbortSignal): Promise<ServerLoad> {
    const answer = await this.#http.json('/metrics', undefined, signal);
    const last = read(Steps, answer, `${this.url}/metrics`).at(-1);
    return { running: last?.numActiveRequests ?? 0, waiting: last?.numQueuedRequests ?? 0 };
  }

  get connections(): number {
    return this.#http.connections;
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #sample(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    const where = `${this.url}${COMPLETIONS}`;
    const collector = new TokenCollector(where, onTokens);
    const take = (event: unknown): FinishReason | undefined => {
      const [choice] = read(CompletionEvent, event, where).choices;
      collector.add(choice?.token_ids ?? [], choice?.logprobs?.token_logprobs);
      return choice?.finish_reason ?? undefined;
    };
    const body = {
      model: this.#model ?? (await this.describe(signal)).model,
      prompt: request.promptIds,
      stream: true,
      detokenize: false,
      logprobs: 1,
      max_tokens: request.maxTokens,
      temperature: request.temperature,
      top_p: request.topP,
      top_k: 0,
      min_p: 0,
      repetition_penalty: 1,
      presence_penalty: 0,
      frequency_penalty: 0,
      include_stop_str_in_output: true,
      skip_special_tokens: false,
      add_special_tokens: false,
      ...(request.seed === undefined ? {} : { seed: request.seed }),
      ...(request.stopIds ? { stop_token_ids: request.stopIds } : {}),
    };
    const finish = await followStream({ http: this.#http, path: COMPLETIONS, body, signal, collector, take });
    const last = collector.ids.at(-1);
    if (finish === 'stop' && request.stopIds && (last === undefined || !request.stopIds.includes(last))) {
      throw collector.refused('ended a turn without giving the token that ends it');
    }
    return collector.finish(finish);
  }
}
