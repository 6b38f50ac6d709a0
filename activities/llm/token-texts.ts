import type { ChatCodec, TextCodec } from './codec.ts';
import { unsuitable } from './template.ts';

/** What stands for bytes that form no character. */
const BROKEN = '\uFFFD';
/** Tokens that may share one character: it has four bytes at most. */
const MOST_SHARED = 4;

/**
 * Texts of single tokens, for people. Tokenizers decode sequences: a first token may lose its space, and tokens may hold
 * parts of a character. So tokens are decoded between control tokens, many in one call, and those that are parts of a
 * character together.
 */
export class TokenTexts {
  readonly #codec: TextCodec;
  readonly #between: { readonly id: number; readonly text: string };
  readonly #known = new Map<number, string>();

  private constructor(codec: TextCodec, between: { id: number; text: string }) {
    this.#codec = codec;
    this.#between = between;
  }

  /** @throws RolloutError LlmUnsuitable if the tokenizer has no control token to stand between others */
  static async from({ codec, format }: ChatCodec, signal: AbortSignal): Promise<TokenTexts> {
    for (const text of [format.eosText, format.bosText, ...(format.controlTokens ?? [])]) {
      if (text === '') continue;
      const [id, more] = await codec.tokenize(text, { parseSpecial: true }, signal);
      if (id !== undefined && more === undefined) return new TokenTexts(codec, { id, text });
    }
    throw unsuitable('the tokenizer has no control token');
  }

  /**
   * Aligned with the ids. Of tokens that form a character together the first has its text and the others none; bytes
   * that form none are U+FFFD.
   */
  async textsOf(ids: readonly number[], signal: AbortSignal): Promise<string[]> {
    const unknown = [...new Set(ids)].filter((id) => !this.#known.has(id));
    const decoded = await this.#apart(
      unknown.map((id) => [id]),
      signal,
    );
    for (const [index, id] of unknown.entries()) this.#known.set(id, decoded[index] as string);
    const texts = ids.map((id) => this.#known.get(id) as string);
    await this.#join(ids, texts, signal);
    return texts;
  }

  /** Gives parts of characters their text, where those beside them complete it. */
  async #join(ids: readonly number[], texts: string[], signal: AbortSignal): Promise<void> {
    const isPart = texts.map((text) => text.includes(BROKEN));
    const windows = ids.flatMap((_, start) => {
      const ends = Array.from({ length: MOST_SHARED - 1 }, (_, more) => start + more + 2);
      return ends.flatMap((end) =>
        end <= ids.length && isPart.slice(start, end).every(Boolean) ? [{ start, end }] : [],
      );
    });
    const joined = await this.#apart(
      windows.map(({ start, end }) => ids.slice(start, end)),
      signal,
    );
    let done = 0;
    for (const [index, { start, end }] of windows.entries()) {
      const text = joined[index] as string;
      if (start < done || text.includes(BROKEN)) continue;
      texts.fill('', start, end);
      texts[start] = text;
      done = end;
    }
  }

  /** Texts of short sequences, each decoded by itself. */
  async #apart(sequences: readonly (readonly number[])[], signal: AbortSignal): Promise<string[]> {
    if (sequences.length === 0) return [];
    const { id, text } = this.#between;
    const own = sequences.map((each) => each.includes(id));
    const rest = sequences.filter((_, index) => !own[index]);
    const whole = await this.#codec.detokenize([id, ...rest.flatMap((each) => [...each, id])], signal);
    const parts = whole.split(text).slice(1, -1);
    if (parts.length !== rest.length) throw unsuitable(`its tokenizer does not keep ${text} when it decodes`);
    let next = 0;
    return own.map((isOwn) => (isOwn ? text : (parts[next++] as string)));
  }
}
