import type { FakeOptions } from './fake-llm.ts';
import { distributionAfter, END, type TinySampling, type TinyToken } from './tiny-model.ts';

/**
 * Wire formats. `vllm` and `vllm-completions` answer as a vLLM server of version 0.32 was recorded to (with and
 * without --enable-scale-out); `sglang` and `sglang-incremental` (with --incremental-streaming-output),
 * `tensorrt-llm` and `prorl` as their sources say, since no server of them was at hand.
 */
export const KINDS = [
  'vllm',
  'vllm-completions',
  'sglang',
  'sglang-incremental',
  'tensorrt-llm',
  'prorl',
] as const;
export type FakeKind = (typeof KINDS)[number];

type Body = Record<string, unknown>;
type Finish = 'stop' | 'length' | null;

interface Answerer {
  readonly streams: boolean;
  /** An answer to anything but a request for tokens. */
  tell(path: string, body: Body, options: FakeOptions): { status?: number; body: unknown } | undefined;
  /** What a request for tokens asks for; undefined if it is none. */
  asked(
    path: string,
    body: Body,
  ): (TinySampling & { prompt: number[]; ends(id: number): boolean }) | undefined;
  /** The event after the last of `sent`. */
  event(path: string, sent: readonly TinyToken[], finish: Finish, options: FakeOptions): unknown;
  whole?(turn: readonly TinyToken[], options: FakeOptions): unknown;
}

const VERSION = 'step-7';
const MODELS = { object: 'list', data: [{ id: 'tiny', object: 'model', max_model_len: 64 }] };
const encoded = (text: string, { encode }: FakeOptions) =>
  encode?.(text) ?? [...text].map((letter) => (letter.codePointAt(0) ?? 0) % 12);

function samplingOf(body: Body, names: { maxTokens: string; seed: string }): TinySampling {
  return {
    temperature: body.temperature as number,
    topP: body.top_p as number,
    maxTokens: body[names.maxTokens] as number,
    seed: (body[names.seed] as number | undefined) ?? 0,
    stopIds: (body.stop_token_ids as number[] | undefined) ?? [],
  };
}

function asked(prompt: unknown, sampling: TinySampling) {
  const ends = (id: number) => id === END || sampling.stopIds.includes(id);
  return { ...sampling, prompt: prompt as number[], ends };
}

/** The model's own log-probability of each token of a text after the one before it; null for the first. */
function ownLogprobs(ids: readonly number[]): (number | null)[] {
  return ids.map((id, at) => {
    const before = ids[at - 1];
    return before === undefined ? null : (distributionAfter(before)[id]?.logprob ?? null);
  });
}

/** Log-probabilities of tokens as the server is told to give them. */
function logprobsOf(tokens: readonly TinyToken[], { raw, spoil }: FakeOptions): unknown[] | null {
  const logprobs = tokens.map((token) => (raw ? token.raw : token.logprob));
  return spoil ? spoil(logprobs) : logprobs;
}

const completionEvent: Answerer['event'] = (_path, sent, finish, options) => {
  const token = sent.at(-1) as TinyToken;
  const logprobs = logprobsOf([token], options);
  return {
    id: 'cmpl-1',
    object: 'text_completion',
    choices: [
      {
        index: 0,
        text: '',
        token_ids: [token.id],
        logprobs: logprobs && { token_logprobs: logprobs, tokens: [`t${token.id}`], text_offset: [0] },
        finish_reason: finish,
        stop_reason: null,
      },
    ],
  };
};

function vllm(scaleOut: boolean): Answerer {
  const control: Record<string, unknown> = {
    '/v1/models': MODELS,
    '/health': '',
    '/metrics': 'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting{engine="0"} 3.0\n',
    '/pause?mode=abort': { status: 'paused' },
    '/pause?mode=keep': { status: 'paused' },
    '/resume': { status: 'resumed' },
    '/collective_rpc': { results: [null] },
    '/update_weight_version': { success: true, new_version: VERSION },
    '/reset_prefix_cache': { success: true },
    '/weight_info': { weight_version: VERSION },
  };
  return {
    streams: true,
    tell: (path, body, options) => {
      if (path === '/tokenize') return { body: { tokens: encoded(body.prompt as string, options) } };
      if (body.prompt_logprobs === 0) {
        const ids = body.prompt as number[];
        const scores = ownLogprobs(ids).map((logprob, at) =>
          logprob === null
            ? null
            : { [String(ids[at])]: { logprob: logprob - (options.otherBy ?? 0), rank: 1 } },
        );
        return { body: { choices: [{ index: 0, token_ids: [0], prompt_logprobs: scores }] } };
      }
      if (path === '/v1/models' && options.model) {
        return { body: { ...MODELS, data: [{ ...MODELS.data[0], id: options.model }] } };
      }
      if (path === '/inference/v1/generate' && !scaleOut) {
        const message = 'Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out.';
        return { status: 403, body: { error: { message, type: 'PermissionDeniedError', code: 403 } } };
      }
      return path in control ? { body: control[path] } : undefined;
    },
    asked: (path, body) => {
      if (path === '/v1/completions') {
        return asked(body.prompt, samplingOf(body, { maxTokens: 'max_tokens', seed: 'seed' }));
      }
      if (path !== '/inference/v1/generate') return undefined;
      const sampling = samplingOf(body.sampling_params as Body, { maxTokens: 'max_tokens', seed: 'seed' });
      return asked(body.token_ids, sampling);
    },
    event: (path, sent, finish, options) => {
      if (path === '/v1/completions') return completionEvent(path, sent, finish, options);
      const token = sent.at(-1) as TinyToken;
      const logprobs = logprobsOf([token], options);
      return {
        request_id: 'generate-tokens-1',
        choices: [
          {
            index: 0,
            token_ids: [token.id],
            finish_reason: finish,
            stop_reason: null,
            weight_versions: finish && [{ version: VERSION, start: 0, end: sent.length }],
            logprobs: logprobs && {
              content: logprobs.map((logprob) => ({ token_id: token.id, logprob, rank: 1 })),
            },
          },
        ],
      };
    },
  };
}

function sglang(incremental: boolean): Answerer {
  const control: Record<string, unknown> = {
    '/v1/models': MODELS,
    '/health': '',
    '/v1/loads?include=core': {
      version: '0.5.23',
      loads: [
        { dp_rank: 0, num_running_reqs: 1, num_waiting_reqs: 1 },
        { dp_rank: 1, num_running_reqs: 1, num_waiting_reqs: 2 },
      ],
    },
    '/abort_request': '',
    '/pause_generation': { message: 'Generation paused successfully.', status: 'ok' },
    '/continue_generation': { message: 'Generation continued successfully.', status: 'ok' },
    '/update_weights_from_disk': { success: true, message: 'Succeeded.', num_paused_requests: 0 },
    '/model_info': { model_path: 'tiny', weight_version: VERSION },
  };
  return {
    streams: true,
    tell: (path, body, options) => {
      if (path === '/tokenize') return { body: { tokens: encoded(body.prompt as string, options) } };
      const start = body.logprob_start_len as number | undefined;
      if (start !== undefined) {
        const ids = body.input_ids as number[];
        const scores = ownLogprobs(ids.slice(start)).map((logprob, at) => [logprob, ids[start + at], null]);
        return { body: { output_ids: [], meta_info: { input_token_logprobs: scores } } };
      }
      return path in control ? { body: control[path] } : undefined;
    },
    asked: (path, body) => {
      if (path !== '/generate') return undefined;
      const names = { maxTokens: 'max_new_tokens', seed: 'sampling_seed' };
      return asked(body.input_ids, samplingOf(body.sampling_params as Body, names));
    },
    event: (_path, sent, finish, options) => {
      const shown = incremental ? sent.slice(-1) : sent;
      const logprobs = logprobsOf(shown, options);
      const last = sent.at(-1) as TinyToken;
      const reason = finish === 'stop' ? { matched: last.id } : { length: sent.length };
      return {
        text: null,
        output_ids: shown.map(({ id }) => id),
        meta_info: {
          id: 'rid',
          completion_tokens: sent.length,
          finish_reason: finish && { type: finish, ...reason },
          weight_version: VERSION,
          ...(logprobs && {
            output_token_logprobs: logprobs.map((logprob, at) => [logprob, shown[at]?.id ?? 0, null]),
          }),
        },
      };
    },
  };
}

const tensorRtLlm: Answerer = {
  streams: true,
  tell: (path) => {
    if (path === '/v1/models') return { body: { object: 'list', data: [{ id: 'tiny' }] } };
    if (path === '/health') return { body: '' };
    if (path !== '/metrics') return undefined;
    return {
      body: [{ numActiveRequests: 9 }, { iter: 2, numActiveRequests: 2, numQueuedRequests: 3 }],
    };
  },
  asked: (path, body) =>
    path === '/v1/completions'
      ? asked(body.prompt, samplingOf(body, { maxTokens: 'max_tokens', seed: 'seed' }))
      : undefined,
  event: completionEvent,
};

const prorl: Answerer = {
  streams: false,
  tell: () => undefined,
  asked: (path, body) =>
    path === '/generate'
      ? asked(body.prompt_ids, samplingOf(body, { maxTokens: 'max_tokens', seed: 'seed' }))
      : undefined,
  event: () => undefined,
  whole: (turn, options) => ({
    response_ids: turn.map(({ id }) => id),
    logprobs: logprobsOf(turn, options),
  }),
};

export const answerers: Readonly<Record<FakeKind, Answerer>> = {
  vllm: vllm(true),
  'vllm-completions': vllm(false),
  sglang: sglang(false),
  'sglang-incremental': sglang(true),
  'tensorrt-llm': tensorRtLlm,
  prorl,
};
