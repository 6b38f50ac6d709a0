import { z } from 'zod';
import { TokenId } from './wire.ts';

/** One event of a `/v1/completions` stream that was asked for token ids, as vLLM and TensorRT-LLM write it. */
export const CompletionEvent = z.object({
  choices: z
    .array(
      z.object({
        token_ids: z.array(TokenId).nullish(),
        logprobs: z.object({ token_logprobs: z.array(z.unknown()) }).nullish(),
        finish_reason: z.enum(['stop', 'length', 'abort']).nullish(),
      }),
    )
    .max(1),
});
