import type { ModelInfo } from '../../contracts/llm.ts';
import type { ChatMessage } from '../../contracts/trajectory.ts';
import type { LlmDialect } from './dialect.ts';
import { SegmentEncoder } from './encoder.ts';
import { ChatTemplate, type Segment, textOf, unsuitable } from './template.ts';

/** Text with characters of one to four bytes, line ends and runs of spaces. */
const PROBE: ChatMessage = { role: 'user', content: 'What is 2 + 3?\n\n  Say é, 漢 or 🦙 first.\n' };

/** A turn whose text stands for whatever was sampled; deltas are read from what a template adds after it. */
const BASE: readonly ChatMessage[] = [
  { role: 'user', content: 'question' },
  { role: 'assistant', content: 'answer' },
];

/**
 * Turns messages into token ids: the whole conversation once, and later only what new messages add. The
 * prompt of a turn is always `previous prompt + sampled + delta`; nothing sampled is encoded again.
 */
export class ChatRenderer {
  /** Id of the token that ends a turn. */
  readonly eosId: number;
  readonly #template: ChatTemplate;
  readonly #encoder: SegmentEncoder;
  readonly #eosText: string;

  private constructor(template: ChatTemplate, encoder: SegmentEncoder, eosText: string, eosId: number) {
    this.#template = template;
    this.#encoder = encoder;
    this.#eosText = eosText;
    this.eosId = eosId;
  }

  /** @throws LlmUnsuitable if the model's template or tokenizer cannot be used this way, with the reason. */
  static async create(dialect: LlmDialect, info: ModelInfo, signal: AbortSignal): Promise<ChatRenderer> {
    const template = new ChatTemplate(info);
    const encoder = new SegmentEncoder(dialect, [info.eosText, info.bosText]);
    const eosId = info.eosText === '' ? null : await encoder.special(info.eosText, signal);
    if (eosId === null) throw unsuitable(`its end-of-turn text "${info.eosText}" is not one special token`);

    const segments = template.segments([PROBE], true);
    const [pieces, whole] = await Promise.all([
      encoder.encode(segments, signal),
      dialect.tokenize(textOf(segments), { parseSpecial: true }, signal),
    ]);
    if (!sameIds(pieces, whole)) {
      throw unsuitable(
        'its tokenizer encodes a conversation otherwise than its parts between special tokens',
      );
    }
    const renderer = new ChatRenderer(template, encoder, info.eosText, eosId);
    renderer.#afterTurn([PROBE]);
    return renderer;
  }

  /** The prompt of the first turn: the conversation, open for the assistant's answer. */
  async initial(messages: readonly ChatMessage[], signal: AbortSignal): Promise<number[]> {
    return this.#encoder.encode(this.#template.segments(messages, true), signal);
  }

  /**
   * What follows `sampled` in the prompt of the next turn: the end of the assistant's turn, the new
   * messages, and the opening of the next answer. Where the turn was cut before its end-of-turn token
   * (token limit, abort), the delta closes it as the template does.
   */
  async delta(
    sampled: readonly number[],
    messages: readonly ChatMessage[],
    signal: AbortSignal,
  ): Promise<number[]> {
    const [first, ...rest] = this.#afterTurn(messages);
    if (first === undefined || sampled.at(-1) !== this.eosId) {
      return this.#encoder.encode(first ? [first, ...rest] : rest, signal);
    }
    const ended = { ...first, text: first.text.slice(this.#eosText.length) };
    return this.#encoder.encode([ended, ...rest], signal);
  }

  /**
   * What the template writes after an assistant's turn when `messages` follow it, found by difference: the
   * same conversation is rendered up to the turn, up to its end, and whole, and each must begin with the
   * one before.
   */
  #afterTurn(messages: readonly ChatMessage[]): Segment[] {
    const open = textOf(this.#template.segments(BASE.slice(0, 1), true));
    const closed = afterAnswer(this.#template.segments(BASE, false));
    const whole = afterAnswer(this.#template.segments([...BASE, ...messages], true));
    if (!whole.before.startsWith(open) || !closed.before.startsWith(open)) {
      throw unsuitable('its chat template changes what precedes a turn once messages follow it');
    }
    if (!textOf(whole.after).startsWith(textOf(closed.after))) {
      throw unsuitable('its chat template closes a turn otherwise when messages follow it');
    }
    const [first] = whole.after;
    if (first?.kind !== 'template' || !first.text.startsWith(this.#eosText)) {
      throw unsuitable(`its chat template does not close a turn with "${this.#eosText}"`);
    }
    return whole.after;
  }
}

function afterAnswer(segments: readonly Segment[]): { before: string; after: Segment[] } {
  const at = segments.findIndex(({ message }) => message === 1);
  if (at < 0 || segments.some(({ message }, index) => message === 1 && index !== at)) {
    throw unsuitable('its chat template does not write an answer exactly once');
  }
  return { before: textOf(segments.slice(0, at)), after: segments.slice(at + 1) };
}

function sameIds(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, index) => id === b[index]);
}
