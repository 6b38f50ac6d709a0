import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { Tokenizer } from 'tokenizers';
import { z } from 'zod';
import { messageOf } from '../../contracts/failures.ts';
import type { ChatCodec, TextCodec } from './codec.ts';
import { unsuitable } from './template.ts';

/** A token beside the model's vocabulary, as tokenizer.json lists it. */
const AddedToken = z.looseObject({ id: z.int().min(0), content: z.string().min(1), special: z.boolean() });
type AddedToken = z.infer<typeof AddedToken>;

/** The parts of tokenizer.json that are looked at; the rest is the tokenizer library's. */
const TokenizerFile = z.looseObject({
  added_tokens: z.array(AddedToken),
  model: z.looseObject({ vocab: z.union([z.record(z.string(), z.int()), z.array(z.unknown())]) }),
});

/** A special token's text: a string, or an object that holds it. */
const TokenText = z
  .union([z.string(), z.looseObject({ content: z.string() }).transform(({ content }) => content)])
  .nullish();

const TokenizerConfig = z.looseObject({
  bos_token: TokenText,
  eos_token: TokenText,
  chat_template: z
    .union([z.string(), z.array(z.object({ name: z.string(), template: z.string() }))])
    .nullish(),
});

const GenerationConfig = z.looseObject({ eos_token_id: z.union([z.int(), z.array(z.int())]).nullish() });

/** What control tokens look like: `<…>` or `[…]`. */
const TAG = /^(<.+>|\[.+\])$/;

/** A tokenizer and chat template as Hugging Face folders hold them. */
export interface TokenizerFolder extends ChatCodec {
  readonly folder: string;
  /** Ids are below this number. */
  readonly vocabularySize: number;
}

/**
 * Reads `tokenizer.json`, `tokenizer_config.json` and, where they are there, `chat_template.jinja` (which goes
 * before the template in the configuration) and `generation_config.json`.
 *
 * *Control tokens* are the added tokens marked as special and tags that the chat template writes, such as
 * `<tool_call>`: text from outside never becomes one of them. Other added tokens (runs of spaces, HTML tags)
 * are words of the vocabulary.
 * @throws LlmUnsuitable that names the file and what is wrong with it.
 */
export async function readTokenizerFolder(folder: string): Promise<TokenizerFolder> {
  const [text, config, templateFile, generation] = await Promise.all([
    readText(folder, 'tokenizer.json'),
    readJson(folder, 'tokenizer_config.json', TokenizerConfig),
    readText(folder, 'chat_template.jinja', { optional: true }),
    readJson(folder, 'generation_config.json', GenerationConfig, { optional: true }),
  ]);
  const file = parsed(folder, 'tokenizer.json', TokenizerFile, text as string);
  const template = templateFile ?? templateOf(config?.chat_template);
  if (!template) throw unsuitable(`${folder} holds no chat template`);
  const control = file.added_tokens.filter(
    ({ special, content }) => special || (TAG.test(content) && template.includes(content)),
  );
  const codec = new FolderCodec(folder, text as string, file, control);
  const stopIds = [generation?.eos_token_id ?? []].flat();
  return {
    folder,
    vocabularySize: codec.vocabularySize,
    codec,
    format: {
      template,
      eosText: config?.eos_token ?? '',
      bosText: config?.bos_token ?? '',
      variables: specialTokenVariables(config ?? {}),
      controlTokens: control.map(({ content }) => content),
      stopIds,
    },
  };
}

/**
 * The tokenizer library of Hugging Face itself (Rust): its pure JavaScript counterpart gives other ids for
 * some strings. Two instances stand side by side: the tokenizer as it is, and one that knows no control
 * tokens, which encodes text from outside.
 */
class FolderCodec implements TextCodec {
  readonly vocabularySize: number;
  readonly #whole: Tokenizer;
  readonly #plain: Tokenizer;

  constructor(
    folder: string,
    text: string,
    file: z.infer<typeof TokenizerFile>,
    control: readonly AddedToken[],
  ) {
    try {
      this.#whole = Tokenizer.fromString(text);
      this.#plain = Tokenizer.fromString(JSON.stringify(withoutControl(file, control)));
    } catch (error) {
      throw unsuitable(`${path.join(folder, 'tokenizer.json')} cannot be read: ${messageOf(error)}`, error);
    }
    for (const tokenizer of [this.#whole, this.#plain]) {
      // Lengths are the server's to limit.
      tokenizer.disableTruncation();
      tokenizer.disablePadding();
    }
    const isControl = new Set(control.map(({ id }) => id));
    const moved = file.added_tokens.find(
      ({ id, content }) => !isControl.has(id) && this.#plain.tokenToId(content) !== id,
    );
    if (moved) throw unsuitable(`its tokenizer cannot be used without its control tokens: ${moved.content}`);
    this.vocabularySize = this.#whole.getVocabSize(true);
  }

  async tokenize(text: string, { parseSpecial }: { parseSpecial: boolean }): Promise<number[]> {
    const tokenizer = parseSpecial ? this.#whole : this.#plain;
    return (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
  }

  detokenize(ids: readonly number[]): Promise<string> {
    return this.#whole.decode([...ids], false);
  }
}

/**
 * The same tokenizer without the control tokens. The library numbers added tokens in their order, after the
 * vocabulary: one that is not in the vocabulary is renamed to a text that never occurs, so that the others
 * keep their ids.
 */
function withoutControl(file: z.infer<typeof TokenizerFile>, control: readonly AddedToken[]) {
  const { vocab } = file.model;
  const isControl = new Set(control.map(({ id }) => id));
  const inVocabulary = Array.isArray(vocab)
    ? new Set(vocab.map((entry) => (Array.isArray(entry) ? entry[0] : entry)))
    : { has: (content: string) => Object.hasOwn(vocab, content) };
  const never = `\0${randomBytes(16).toString('hex')}`;
  return {
    ...file,
    added_tokens: file.added_tokens.flatMap((token) => {
      if (!isControl.has(token.id)) return [token];
      return inVocabulary.has(token.content) ? [] : [{ ...token, content: `${never}${token.id}` }];
    }),
  };
}

/** Variables such as `pad_token` that a template may use: all special tokens that the configuration names. */
function specialTokenVariables(config: z.infer<typeof TokenizerConfig>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(config).flatMap(([name, value]) => {
      const text = name.endsWith('_token') ? TokenText.safeParse(value).data : undefined;
      return typeof text === 'string' ? [[name, text]] : [];
    }),
  );
}

function templateOf(template: z.infer<typeof TokenizerConfig>['chat_template']): string | undefined {
  if (!Array.isArray(template)) return template ?? undefined;
  return template.find(({ name }) => name === 'default')?.template;
}

async function readText(
  folder: string,
  name: string,
  { optional = false } = {},
): Promise<string | undefined> {
  try {
    return await readFile(path.join(folder, name), 'utf8');
  } catch (error) {
    if (optional && (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw unsuitable(`its tokenizer folder: ${messageOf(error)}`, error);
  }
}

async function readJson<T extends z.ZodType>(
  folder: string,
  name: string,
  schema: T,
  options: { optional?: boolean } = {},
): Promise<z.infer<T> | undefined> {
  const text = await readText(folder, name, options);
  return text === undefined ? undefined : parsed(folder, name, schema, text);
}

function parsed<T extends z.ZodType>(folder: string, name: string, schema: T, text: string): z.infer<T> {
  const where = path.join(folder, name);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw unsuitable(`${where} is no JSON: ${messageOf(error)}`, error);
  }
  const read = schema.safeParse(value);
  if (!read.success) throw unsuitable(`${where}: ${z.prettifyError(read.error)}`, read.error);
  return read.data;
}
