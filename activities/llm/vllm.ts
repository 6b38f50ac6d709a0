import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import type { FinishReason, Generated, GenerateRequest, VersionSpan } from '../../contracts/llm.ts';
import { TokenCollector } from './collector.ts';
import { CompletionEvent } from './completions-wire.ts';
import type { LlmDialect, ModelDescription, OnTokens, ServerControl, ServerLoad } from './dialect.ts';
import { gauges, HttpRefused, type HttpTimeouts, LlmHttp } from './http.ts';
import { LogprobScale } from './logprob-scale.ts';
import { describeFirstModel } from './models.ts';
import { followStream } from './stream.ts';
import { read, TokenId, Tokenized, VersionSpans } from './wire.ts';

/** Token-level generation; off unless the server was started with `--enable-scale-out`. */
const GENERATE = '/inference/v1/generate';
const COMPLETIONS = '/v1/completions';

const Finish = z.enum(['stop', 'length', 'abort']).nullish();

/** One event of {@link GENERATE}. */
const GenerateEvent = z.object({
  choices: z
    .array(
      z.object({
        token_ids: z.array(TokenId),
        finish_reason: Finish,
        weight_versions: VersionSpans,
        logprobs: z
          .object({ content: z.array(z.object({ token_id: TokenId.nullish(), logprob: z.unknown() })) })
          .nullish(),
      }),
    )
    .max(1),
});

/** Answer of {@link COMPLETIONS} with the log-probabilities of its prompt, by token id. */
const ScoredPrompt = z.object({
  choices: z.tuple([
    z.object({
      prompt_logprobs: z.array(z.record(z.string(), z.object({ logprob: z.number() })).nullable()),
    }),
  ]),
});

/**
 * vLLM. Its formats were taken from a server of version 0.32 (`npm run test:vllm` runs one).
 * - `/inference/v1/generate` is used where the server allows it: only there it tells the versions of its weights
 *   per span of tokens. Else `/v1/completions`, with token ids as the prompt.
 * - The stop token is among the ids, with its log-probability.
 * - What a request leaves open is taken from the model's generation_config.json (top-k, penalties): so
 *   everything that changes the distribution is sent.
 * - Log-probabilities are the model's own at temperature 1 unless it was started with
 *   `--logprobs-mode processed_logprobs`; see {@link LogprobScale}.
 * - It ends a request whose connection is closed, with the next token.
 * - Its tokenizer's calls read special tokens in any text, so another is needed to encode text from outside.
 */
export class VllmDialect implements LlmDialect {
  readonly name = 'vllm';
  readonly url: string;
  readonly codec = null;
  readonly control: ServerControl;
  readonly #http: LlmHttp;
  readonly #scale = new LogprobScale(
    (request, signal, onTokens) => this.#sample(request, signal, onTokens),
    'start it with --logprobs-mode processed_logprobs',
  );
  #model: string | undefined;
  #route: typeof GENERATE | typeof COMPLETIONS = GENERATE;

  constructor(url: string, timeouts: Partial<HttpTimeouts> = {}) {
    this.#http = new LlmHttp(url, timeouts);
    this.url = this.#http.url;
    this.control = makeControl(this.#http);
  }

  generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    return this.#scale.generate(request, signal, onTokens);
  }

  async describe(signal: AbortSignal): Promise<ModelDescription> {
    const description = await describeFirstModel(this.#http, signal);
    this.#model = description.model;
    return description;
  }

  async score(
    ids: readonly number[],
    from: number,
    { temperature, topP }: { temperature: number; topP: number },
    signal: AbortSignal,
  ): Promise<number[] | null> {
    // Those of a prompt are the model's own.
    if ((temperature !== 1 && temperature !== 0) || topP !== 1) return null;
    const where = `${this.url}${COMPLETIONS}`;
    const model = await this.#modelName(signal);
    const body = { model, prompt: ids, max_tokens: 1, temperature: 0, prompt_logprobs: 0 };
    const answer = read(ScoredPrompt, await this.#http.json(COMPLETIONS, body, signal), where);
    const known = answer.choices[0].prompt_logprobs.slice(from);
    const collector = new TokenCollector(where);
    collector.add(
      ids.slice(from),
      known.map((entry, at) => entry?.[String(ids[from + at])]?.logprob),
    );
    return collector.logprobs;
  }

  async encode(text: string, signal: AbortSignal): Promise<number[]> {
    const body = { model: await this.#modelName(signal), prompt: text, add_special_tokens: false };
    return read(Tokenized, await this.#http.json('/tokenize', body, signal), `${this.url}/tokenize`).tokens;
  }

  async health(signal: AbortSignal): Promise<void> {
    await this.#http.text('/health', undefined, signal);
  }

  async load(signal: AbortSignal): Promise<ServerLoad> {
    const read = gauges(await this.#http.text('/metrics', undefined, signal));
    return { running: read('vllm:num_requests_running'), waiting: read('vllm:num_requests_waiting') };
  }

  get connections(): number {
    return this.#http.connections;
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #sample(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    if (this.#route === GENERATE) {
      try {
        return await this.#generate(request, signal, onTokens);
      } catch (error) {
        // Not allowed (403), or a version without it.
        if (!(error instanceof HttpRefused && [403, 404, 405].includes(error.status))) throw error;
        this.#route = COMPLETIONS;
      }
    }
    return this.#complete(request, signal, onTokens);
  }

  async #generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    const where = `${this.url}${GENERATE}`;
    const collector = new TokenCollector(where, onTokens);
    let versions: readonly VersionSpan[] | null | undefined;
    const take = (event: unknown): FinishReason | undefined => {
      const [choice] = read(GenerateEvent, event, where).choices;
      if (!choice) return undefined;
      const content = choice.logprobs?.content;
      const strange = content?.findIndex(({ token_id }, at) => token_id !== choice.token_ids[at]) ?? -1;
      if (strange >= 0) throw collector.refused('gave log-probabilities of other tokens than it sent');
      const logprobs = content?.map(({ logprob }) => logprob);
      collector.add(choice.token_ids, logprobs);
      versions = choice.weight_versions ?? versions;
      return choice.finish_reason ?? undefined;
    };
    const body = {
      request_id: randomUUID(),
      model: await this.#modelName(signal),
      token_ids: request.promptIds,
      stream: true,
      sampling_params: { ...samplingOf(request), logprobs: 0 },
    };
    const finish = await followStream({ http: this.#http, path: GENERATE, body, signal, collector, take });
    return collector.finish(finish, versions);
  }

  async #complete(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    const where = `${this.url}${COMPLETIONS}`;
    const collector = new TokenCollector(where, onTokens);
    const take = (event: unknown): FinishReason | undefined => {
      const [choice] = read(CompletionEvent, event, where).choices;
      collector.add(choice?.token_ids ?? [], choice?.logprobs?.token_logprobs);
      return choice?.finish_reason ?? undefined;
    };
    const body = {
      model: await this.#modelName(signal),
      prompt: request.promptIds,
      stream: true,
      return_token_ids: true,
      logprobs: 0,
      ...samplingOf(request),
    };
    const finish = await followStream({ http: this.#http, path: COMPLETIONS, body, signal, collector, take });
    return collector.finish(finish);
  }

  /** Requests name the model: the first that is served. */
  async #modelName(signal: AbortSignal): Promise<string> {
    return this.#model ?? (await this.describe(signal)).model;
  }
}

/** Everything that changes what is sampled, none of it left to the model's own settings. */
function samplingOf({ maxTokens, temperature, topP, seed, stopIds }: GenerateRequest) {
  return {
    max_tokens: maxTokens,
    temperature,
    top_p: topP,
    top_k: 0,
    min_p: 0,
    repetition_penalty: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    skip_special_tokens: false,
    ...(seed === undefined ? {} : { seed }),
    ...(stopIds ? { stop_token_ids: stopIds } : {}),
  };
}

/** The server needs VLLM_SERVER_DEV_MODE=1 for these calls. */
function makeControl(http: LlmHttp): ServerControl {
  const post = (path: string, body: unknown, signal: AbortSignal) => http.json(path, body, signal);
  return {
    pause: async (mode, signal) => {
      await post(`/pause?mode=${mode}`, {}, signal);
    },
    resume: async (signal) => {
      await post('/resume', {}, signal);
    },
    // Its weight update of its own wants a GPU; loading from a folder works anywhere. A tied lm_head keeps its
    // old values on the CPU: serve checkpoints whose output layer is written out.
    loadWeights: async ({ folder, version }, signal) => {
      const reload = { method: 'reload_weights', kwargs: { weights_path: folder } };
      await post('/collective_rpc', reload, signal);
      await post('/update_weight_version', { new_version: version }, signal);
      const dropped = await post('/reset_prefix_cache', {}, signal);
      read(z.object({ success: z.literal(true) }), dropped, `${http.url}/reset_prefix_cache`);
    },
    version: async (signal) => {
      const answer = await http.json('/weight_info', undefined, signal);
      return read(z.object({ weight_version: z.string() }), answer, `${http.url}/weight_info`).weight_version;
    },
  };
}
