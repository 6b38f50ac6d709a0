import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import type { FinishReason, Generated, GenerateRequest, VersionSpan } from '../../contracts/llm.ts';
import { TokenCollector } from './collector.ts';
import type { LlmDialect, ModelDescription, OnTokens, ServerControl, ServerLoad } from './dialect.ts';
import { type HttpTimeouts, LlmHttp, refuse } from './http.ts';
import { LogprobScale } from './logprob-scale.ts';
import { describeFirstModel } from './models.ts';
import { followStream } from './stream.ts';
import { read, TokenId, Tokenized, VersionSpans } from './wire.ts';

const FinishReasonField = z
  .object({
    type: z.enum(['stop', 'length', 'abort']),
    /** The token or text that ended the turn. */
    matched: z.unknown().optional(),
    message: z.string().nullish(),
    status_code: z.int().nullish(),
  })
  .nullish();

const TokenLogprob = z.tuple([z.unknown(), TokenId]).rest(z.unknown());

/** One event of `/generate`. Lists hold everything so far or, with --incremental-streaming-output, what is new. */
const GenerateEvent = z.object({
  output_ids: z.array(TokenId),
  meta_info: z.object({
    completion_tokens: z.int().min(0),
    finish_reason: FinishReasonField,
    output_token_logprobs: z.array(TokenLogprob).nullish(),
    weight_version: z.string().nullish(),
    weight_versions: VersionSpans,
  }),
});

/** Answer of `/generate` with the log-probabilities of its prompt from a position on; the first is null. */
const ScoredPrompt = z.object({ meta_info: z.object({ input_token_logprobs: z.array(TokenLogprob) }) });

const Loads = z.object({
  loads: z.array(z.object({ num_running_reqs: z.int(), num_waiting_reqs: z.int() })),
});

/**
 * SGLang. Its formats were read in the sources of version 0.5.23 (http_server.py, tokenizer_manager.py,
 * io_struct.py, schedule_batch.py); no server was at hand, so the tests answer as those sources do.
 * - The stop token is among the ids, with its log-probability.
 * - Log-probabilities are of the distribution after temperature and before top-p (sampler.py); with
 *   SGLANG_RETURN_ORIGINAL_LOGPROB before both. See {@link LogprobScale}.
 * - It notices a closed connection only after a while: an abort is told by `/abort_request`. That call ends all
 *   requests whose id *begins* with the given one, so ids are of one length.
 * - Its tokenizer's calls read special tokens in any text, so another is needed to encode text from outside.
 */
export class SglangDialect implements LlmDialect {
  readonly name = 'sglang';
  readonly url: string;
  readonly codec = null;
  readonly control: ServerControl;
  readonly #http: LlmHttp;
  readonly #scale = new LogprobScale(
    (request, signal, onTokens) => this.#sample(request, signal, onTokens),
    'sample with top-p 1, and start it without SGLANG_RETURN_ORIGINAL_LOGPROB',
  );

  constructor(url: string, timeouts: Partial<HttpTimeouts> = {}) {
    this.#http = new LlmHttp(url, timeouts);
    this.url = this.#http.url;
    this.control = makeControl(this.#http);
  }

  generate(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    return this.#scale.generate(request, signal, onTokens);
  }

  describe(signal: AbortSignal): Promise<ModelDescription> {
    return describeFirstModel(this.#http, signal);
  }

  async score(
    ids: readonly number[],
    from: number,
    { temperature, topP }: { temperature: number; topP: number },
    signal: AbortSignal,
  ): Promise<number[] | null> {
    if ((temperature !== 1 && temperature !== 0) || topP !== 1) return null;
    const where = `${this.url}/generate`;
    const body = {
      input_ids: ids,
      return_logprob: true,
      logprob_start_len: from - 1,
      sampling_params: { max_new_tokens: 0, temperature: 1 },
    };
    const answer = read(ScoredPrompt, await this.#http.json('/generate', body, signal), where);
    const known = answer.meta_info.input_token_logprobs.slice(1);
    const collector = new TokenCollector(where);
    if (known.some(([, id], at) => id !== ids[from + at])) {
      throw collector.refused('gave log-probabilities of other tokens than it was sent');
    }
    collector.add(
      ids.slice(from),
      known.map(([logprob]) => logprob),
    );
    return collector.logprobs;
  }

  async encode(text: string, signal: AbortSignal): Promise<number[]> {
    const body = { prompt: text, add_special_tokens: false };
    return read(Tokenized, await this.#http.json('/tokenize', body, signal), `${this.url}/tokenize`).tokens;
  }

  async health(signal: AbortSignal): Promise<void> {
    await this.#http.text('/health', undefined, signal);
  }

  async load(signal: AbortSignal): Promise<ServerLoad> {
    const answer = await this.#http.json('/v1/loads?include=core', undefined, signal);
    const { loads } = read(Loads, answer, `${this.url}/v1/loads`);
    return {
      running: loads.reduce((sum, rank) => sum + rank.num_running_reqs, 0),
      waiting: loads.reduce((sum, rank) => sum + rank.num_waiting_reqs, 0),
    };
  }

  get connections(): number {
    return this.#http.connections;
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #sample(request: GenerateRequest, signal: AbortSignal, onTokens?: OnTokens): Promise<Generated> {
    const where = `${this.url}/generate`;
    const collector = new TokenCollector(where, onTokens);
    let versions: readonly VersionSpan[] | null | undefined;
    const take = (event: unknown): FinishReason | undefined => {
      const { output_ids: ids, meta_info: meta } = read(GenerateEvent, event, where);
      const news = meta.completion_tokens - collector.ids.length;
      if (news < 0 || ids.length < news) {
        throw collector.refused(`counts ${meta.completion_tokens} tokens where it sent others`);
      }
      // Both kinds of lists end with what is new.
      const newIds = ids.slice(ids.length - news);
      const known = meta.output_token_logprobs ?? [];
      const newLogprobs = known.slice(Math.max(0, known.length - news));
      if (newLogprobs.some(([, id], at) => id !== newIds[at])) {
        throw collector.refused('gave log-probabilities of other tokens than it sent');
      }
      collector.add(
        newIds,
        newLogprobs.map(([logprob]) => logprob),
      );
      const { finish_reason: finish, weight_version: version } = meta;
      if (!finish) return undefined;
      // A request that it refuses ends as an abort with a status.
      if (finish.type === 'abort' && finish.status_code) {
        refuse(where, finish.status_code, finish.message ?? '(no text)');
      }
      versions =
        meta.weight_versions ?? (version ? [{ version, start: 0, end: collector.ids.length }] : undefined);
      if (typeof finish.matched === 'number' && collector.ids.at(-1) !== finish.matched) {
        throw collector.refused(`ended a turn with token ${finish.matched} and left it out`);
      }
      return finish.type;
    };
    const rid = randomUUID();
    const finish = await followStream({
      http: this.#http,
      path: '/generate',
      body: {
        rid,
        input_ids: request.promptIds,
        stream: true,
        return_logprob: true,
        sampling_params: samplingOf(request),
      },
      signal,
      collector,
      take,
      tellAbort: () => this.#http.text('/abort_request', { rid }, AbortSignal.timeout(10_000)),
    });
    return collector.finish(finish, versions);
  }
}

/** Everything that changes what is sampled, none of it left to the server's own settings. */
function samplingOf({ maxTokens, temperature, topP, seed, stopIds }: GenerateRequest) {
  return {
    max_new_tokens: maxTokens,
    temperature,
    top_p: topP,
    top_k: -1,
    min_p: 0,
    repetition_penalty: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    skip_special_tokens: false,
    no_stop_trim: true,
    // Heeded where the server runs with --enable-deterministic-inference.
    ...(seed === undefined ? {} : { sampling_seed: seed }),
    ...(stopIds ? { stop_token_ids: stopIds } : {}),
  };
}

function makeControl(http: LlmHttp): ServerControl {
  return {
    // Requests that are to be kept go back to the queue: only then can the cache of old weights be dropped.
    pause: async (mode, signal) => {
      const body = { mode: mode === 'keep' ? 'retract' : 'abort' };
      await http.json('/pause_generation', body, signal);
    },
    resume: async (signal) => {
      await http.json('/continue_generation', {}, signal);
    },
    // Drops its cache as well; a failure is answered with status 400 and its reason.
    loadWeights: async ({ folder, version }, signal) => {
      const body = { model_path: folder, weight_version: version };
      await http.json('/update_weights_from_disk', body, signal);
    },
    version: async (signal) => {
      const answer = await http.json('/model_info', undefined, signal);
      return read(z.object({ weight_version: z.string() }), answer, `${http.url}/model_info`).weight_version;
    },
  };
}
