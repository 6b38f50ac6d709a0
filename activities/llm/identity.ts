import { createHash } from 'node:crypto';
import type { ModelIdentity } from '../../contracts/trajectory.ts';
import type { ChatCodec, TextCodec } from './codec.ts';
import type { ModelDescription } from './dialect.ts';

/** Encodes differently under tokenizers that differ in splitting, normalising, merges or special tokens. */
export const PROBE = [
  'The quick brown fox 0123456789, 3.14159 and 1e-7;\tor\r\n\r\n    return x != y ?? "z";',
  'naïve Å ﬁ ½ Straße İstanbul, Москва, 東京都, ภาษาไทย, العربية, 👩‍👩‍👧 🦙',
  '<|im_start|><|im_end|><s></s><bos><eos><|endoftext|><|eot_id|><think></think><tool_call>',
];

/** What a server's tokens were made by; two servers with the same identity can continue each other's. */
export async function identityOf(
  chat: ChatCodec,
  { model, vocabularySize, parameterCount, fileBytes }: ModelDescription,
  signal: AbortSignal,
): Promise<ModelIdentity> {
  return {
    name: model,
    model_hash: hash({ model, vocabularySize, parameterCount, fileBytes }),
    tokenizer_hash: await tokenizerHashOf(chat.codec, signal),
    template_hash: hash(chat.format.template),
  };
}

/** The hash of the encodings of the probe text. */
export async function tokenizerHashOf(codec: TextCodec, signal: AbortSignal): Promise<string> {
  const encodings = PROBE.flatMap((text) =>
    [true, false].map((parseSpecial) => codec.tokenize(text, { parseSpecial }, signal)),
  );
  return hash(await Promise.all(encodings));
}

function hash(value: unknown): string {
  return `sha256:${createHash('sha256').update(JSON.stringify(value)).digest('hex')}`;
}
