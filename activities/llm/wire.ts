import { z } from 'zod';
import { RolloutError } from '../../contracts/failures.ts';

/** No vocabulary is larger; tokenizers would take a larger number for another token. */
export const TokenId = z.int().min(0).max(0x7fff_ffff);

/** What a server sends when something goes wrong in the middle of a stream: an object, or words. */
export const ErrorEvent = z.object({
  error: z.union([
    z.string().transform((message) => ({ code: 500, message })),
    // Some give a name in place of a status.
    z.object({ code: z.int().min(400).max(599).catch(500), message: z.string() }),
  ]),
});

/** Versions of weights per span of a turn, as vLLM and SGLang both write them. */
export const VersionSpans = z
  .array(z.object({ version: z.string(), start: z.int().min(0), end: z.int().min(0) }))
  .nullish();

/** POST /tokenize of vLLM and SGLang. */
export const Tokenized = z.object({ tokens: z.array(TokenId) });

/** An answer read by its schema. @throws LlmInvalidAnswer that names what is wrong with it. */
export function read<T extends z.ZodType>(schema: T, answer: unknown, where: string): z.infer<T> {
  const parsed = schema.safeParse(answer);
  if (parsed.success) return parsed.data;
  throw new RolloutError('LlmInvalidAnswer', `${where}: ${z.prettifyError(parsed.error)}`);
}
