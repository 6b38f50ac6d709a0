import type { TextCodec } from './codec.ts';
import type { Segment } from './template.ts';

/** Shapes that special tokens have: `<|…|>`, `<…>`, `<｜…｜>` and `[…]`. */
const SHAPES = ['<[^<>\\s]{1,60}>', '\\[/?[A-Z_]{2,20}\\]'];

/** Short pieces remembered with their ids: a template says the same few words again and again. */
const REMEMBERED = { pieces: 1_000, characters: 200 };

/**
 * Encodes rendered segments. Special-token text counts only where the template wrote it; everything between
 * two of them, the template's words and contents alike, is one piece of plain text, which is how a tokenizer
 * splits it too. So the ids are the canonical ones, but no content can forge a special token.
 */
export class SegmentEncoder {
  readonly #codec: TextCodec;
  readonly #shapes: RegExp;
  readonly #specials = new Map<string, number | null>();
  readonly #pieces = new Map<string, readonly number[]>();

  /** `known` are texts of special tokens in whatever shape, such as the end-of-turn token's. */
  constructor(codec: TextCodec, known: readonly string[]) {
    this.#codec = codec;
    const longestFirst = known.filter(Boolean).sort((a, b) => b.length - a.length);
    const escaped = longestFirst.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    this.#shapes = new RegExp([...escaped, ...SHAPES].join('|'), 'g');
  }

  async encode(segments: readonly Segment[], signal: AbortSignal): Promise<number[]> {
    const parts = await this.#split(segments, signal);
    const encoded = await Promise.all(
      parts.map((part) => (typeof part === 'number' ? [part] : this.#plain(part, signal))),
    );
    return encoded.flat();
  }

  /** The id of a special token's text, or null if the text is no special token. */
  async special(text: string, signal: AbortSignal): Promise<number | null> {
    const known = this.#specials.get(text);
    if (known !== undefined) return known;
    const [special, plain] = await Promise.all([
      this.#codec.tokenize(text, { parseSpecial: true }, signal),
      this.#codec.tokenize(text, { parseSpecial: false }, signal),
    ]);
    // A token that plain text gives as well can be forged by nobody: the tokenizer treats it as a word.
    const id = special.length === 1 && plain[0] !== special[0] ? (special[0] ?? null) : null;
    this.#specials.set(text, id);
    return id;
  }

  /** The special token that a text begins with, if it does. */
  async leading(text: string, signal: AbortSignal): Promise<{ text: string; id: number } | undefined> {
    for (const match of text.matchAll(this.#shapes)) {
      const id = match.index === 0 ? await this.special(match[0], signal) : null;
      return id === null ? undefined : { text: match[0], id };
    }
    return undefined;
  }

  /** Special tokens as ids, and the plain text between them. */
  async #split(segments: readonly Segment[], signal: AbortSignal): Promise<(number | string)[]> {
    const parts: (number | string)[] = [];
    let plain = '';
    const flush = () => {
      if (plain !== '') parts.push(plain);
      plain = '';
    };
    for (const { kind, text } of segments) {
      let end = 0;
      for (const match of kind === 'template' ? text.matchAll(this.#shapes) : []) {
        const id = await this.special(match[0], signal);
        if (id === null) continue;
        plain += text.slice(end, match.index);
        flush();
        parts.push(id);
        end = match.index + match[0].length;
      }
      plain += text.slice(end);
    }
    flush();
    return parts;
  }

  async #plain(text: string, signal: AbortSignal): Promise<readonly number[]> {
    const known = this.#pieces.get(text);
    if (known) return known;
    const ids = await this.#codec.tokenize(text, { parseSpecial: false }, signal);
    if (text.length <= REMEMBERED.characters) {
      const [oldest] = this.#pieces.keys();
      if (this.#pieces.size >= REMEMBERED.pieces && oldest !== undefined) this.#pieces.delete(oldest);
      this.#pieces.set(text, ids);
    }
    return ids;
  }
}
