import { z } from 'zod';
import { TokenId } from './wire.ts';

/** A token with its log-probability at temperature 1, or its probability in the distribution sampled from. */
const TokenProbability = z.object({
  id: TokenId,
  logprob: z.number().optional(),
  prob: z.number().optional(),
});
export type TokenProbability = z.infer<typeof TokenProbability>;

/** Event of a stream: one token, or how far the prompt has been read. */
export const TokenEvent = z.object({
  stop: z.literal(false),
  tokens: z.array(TokenId),
  /** Tokens sampled so far, those held back included. */
  tokens_predicted: z.int().min(0),
  completion_probabilities: z.array(TokenProbability).default([]),
  /** Present while the prompt is read; `tokens` then holds a meaningless 0. */
  prompt_progress: z.unknown().optional(),
});

/** Last event of a stream. */
export const FinalEvent = z.object({
  stop: z.literal(true),
  stop_type: z.enum(['eos', 'limit', 'word', 'none']),
  tokens_predicted: z.int().min(0),
});

/** One event of a stream. */
export const StreamEvent = z.discriminatedUnion('stop', [TokenEvent, FinalEvent]);

/** Answer to a request for one token with the probabilities of all. */
export const DistributionAnswer = z.object({
  stop_type: z.enum(['eos', 'limit', 'word', 'none']),
  completion_probabilities: z.tuple([
    z.object({
      top_logprobs: z
        .array(
          z.object({ id: TokenId, logprob: z.number().max(0.01), bytes: z.array(z.int().min(0).max(255)) }),
        )
        .min(1),
    }),
  ]),
});

/** GET /props. */
export const Props = z.object({
  model_alias: z.string().optional(),
  model_path: z.string().optional(),
  chat_template: z.string(),
  bos_token: z.string(),
  eos_token: z.string(),
  default_generation_settings: z.object({ n_ctx: z.int().min(1) }),
});

/** GET /v1/models. */
export const Models = z.object({
  data: z
    .array(
      z.object({
        meta: z.object({ n_vocab: z.int(), n_params: z.int(), size: z.int() }).partial().nullish(),
      }),
    )
    .min(1),
});

export const Tokenized = z.object({ tokens: z.array(TokenId) });
export const Detokenized = z.object({ content: z.string() });
export const Health = z.object({ status: z.literal('ok') });

/** One request's place on the server. */
export const Slots = z.array(z.object({ is_processing: z.boolean() }));
