import { toUSVString } from 'node:util';
import { RolloutError } from '../../contracts/failures.ts';
import type { ToolSpec } from '../../contracts/tools.ts';
import type { ChatMessage } from '../../contracts/trajectory.ts';
import type { ChatCodec } from './codec.ts';
import { SegmentEncoder } from './encoder.ts';
import { ChatTemplate, type RenderOptions, type Segment, textOf, unsuitable } from './template.ts';

/** Text with characters of one to four bytes, line ends and runs of spaces. */
const PROBE: ChatMessage = { role: 'user', content: 'What is 2 + 3?\n\n  Say é, 漢 or 🦙 first.\n' };
const TOOL_PROBE: ChatMessage = { ...PROBE, role: 'tool' };

/** A turn whose text stands for whatever was sampled; deltas are read from what a template adds after it. */
const BASE: readonly ChatMessage[] = [
  { role: 'user', content: 'question' },
  { role: 'assistant', content: 'answer' },
];
const ANSWER = 1;

/** What some templates begin the model's thoughts with at the end of a prompt, and leave out of answers in the past. */
const THOUGHTS = /<think>\s*$/;

/** A special token. */
interface Special {
  readonly text: string;
  readonly id: number;
}

/**
 * Turns messages into token ids: the whole conversation once, and later only what new messages add. The
 * prompt of a turn is always `previous prompt + sampled + delta`; nothing sampled is encoded again.
 */
export class ChatRenderer {
  /** Id of the token that ends a turn when nothing follows it. */
  readonly eosId: number;
  /** All tokens that end a turn, for the server to stop at. */
  readonly stopIds: readonly number[];
  /** True if the template begins the model's thoughts for it at the end of a prompt. */
  readonly opensThoughts: boolean;
  readonly #template: ChatTemplate;
  readonly #encoder: SegmentEncoder;
  readonly #toolsAsUser: boolean;
  /** What closes a turn in the middle of a conversation. */
  readonly #close: Special;

  private constructor(parts: {
    template: ChatTemplate;
    encoder: SegmentEncoder;
    toolsAsUser: boolean;
    close: Special;
    stopIds: readonly [number, ...number[]];
  }) {
    this.#template = parts.template;
    this.#encoder = parts.encoder;
    this.#toolsAsUser = parts.toolsAsUser;
    this.#close = parts.close;
    this.stopIds = parts.stopIds;
    this.eosId = parts.stopIds[0];
    this.opensThoughts = THOUGHTS.test(this.#template.render([PROBE], { open: true }));
  }

  /** @throws LlmUnsuitable if the model's template or tokenizer cannot be used this way, with the reason. */
  static async create({ codec, format }: ChatCodec, signal: AbortSignal): Promise<ChatRenderer> {
    const template = new ChatTemplate(format);
    const encoder = new SegmentEncoder(codec, [
      format.eosText,
      format.bosText,
      ...(format.controlTokens ?? []),
    ]);
    const segments = template.segments([PROBE], { open: true });
    const [pieces, whole] = await Promise.all([
      encoder.encode(segments, signal),
      codec.tokenize(textOf(segments), { parseSpecial: true }, signal),
    ]);
    if (!sameIds(pieces, whole)) {
      throw unsuitable(
        'its tokenizer encodes a conversation otherwise than its parts between special tokens',
      );
    }
    const { last, middle, toolsAsUser } = closings(template);
    const [end, close] = await Promise.all([encoder.leading(last, signal), encoder.leading(middle, signal)]);
    if (!end || !close) throw unsuitable('its chat template does not close a turn with one special token');
    // Some models end the last turn with another token than earlier ones; what follows must be the same.
    if (!middle.slice(close.text.length).startsWith(last.slice(end.text.length))) {
      throw unsuitable('its chat template closes a turn otherwise when messages follow it');
    }
    const eosId = format.eosText === '' ? null : await encoder.special(format.eosText, signal);
    const stopIds = new Set([...(eosId === null ? [] : [eosId]), ...(format.stopIds ?? [])]);
    stopIds.delete(end.id);
    return new ChatRenderer({ template, encoder, toolsAsUser, close, stopIds: [end.id, ...stopIds] });
  }

  /**
   * The prompt of the first turn: the conversation, open for the assistant's answer. `tools` are those that the
   * template is to describe.
   * @throws LlmUnsuitable if it refuses the conversation, alters it, writes it otherwise when it goes on (moves the system
   * message or the tools to the last of the user's messages, say), or describes no tools.
   */
  async initial(
    messages: readonly ChatMessage[],
    signal: AbortSignal,
    tools?: readonly ToolSpec[],
  ): Promise<number[]> {
    const told = this.#told(messages);
    const options = { open: true, ...(tools ? { tools } : {}) };
    const segments = this.#template.segments(told, options);
    if (tools && tools.length > 0 && textOf(segments) === this.#template.render(told, { open: true })) {
      throw unsuitable('its chat template does not tell the model of tools: use the tool format "fenced"');
    }
    this.#prove(told, options);
    return this.#encoder.encode(segments, signal);
  }

  /**
   * What follows `sampled` in the prompt of the next turn: the end of the assistant's turn, the new
   * messages, and the opening of the next answer. Where the turn was cut before a token that ends it (token
   * limit, abort), the delta closes it as the template does.
   */
  async delta(
    sampled: readonly number[],
    messages: readonly ChatMessage[],
    signal: AbortSignal,
  ): Promise<number[]> {
    const [first, ...rest] = afterTurn(this.#template, this.#told(messages));
    if (first?.kind !== 'template' || !first.text.startsWith(this.#close.text)) {
      throw unsuitable('its chat template closes a turn otherwise before other messages');
    }
    if (!this.ends(sampled)) return this.#encoder.encode([first, ...rest], signal);
    const opening = { ...first, text: first.text.slice(this.#close.text.length) };
    return this.#encoder.encode([opening, ...rest], signal);
  }

  /** Whether a turn's last token is one that ends it. */
  ends(sampled: readonly number[]): boolean {
    const last = sampled.at(-1);
    return last !== undefined && (last === this.#close.id || this.stopIds.includes(last));
  }

  /** That the prompt is also how the conversation begins once it goes on: no delta could change it. */
  #prove(told: readonly ChatMessage[], options: RenderOptions): void {
    const last = told.at(-1)?.role;
    if (last !== 'user' && last !== 'tool') return; // what may follow that, templates see differently
    const [answer, result] = [BASE[ANSWER] as ChatMessage, this.#toolsAsUser ? PROBE : TOOL_PROBE];
    const prompt = this.#template.render(told, options).replace(THOUGHTS, '');
    if (this.#template.render([...told, answer, result], options).startsWith(prompt)) return;
    throw unsuitable('its chat template writes the prompt otherwise once messages follow it');
  }

  #told(messages: readonly ChatMessage[]): readonly ChatMessage[] {
    // Half a surrogate pair, which JSON may hold, is no text: some servers refuse it.
    const told = messages.map(({ role, content }) => ({ role, content: toUSVString(content) }));
    return this.#toolsAsUser ? asUser(told) : told;
  }
}

/** How a template closes a turn: its last one, and one that results of tools follow. */
function closings(template: ChatTemplate): { last: string; middle: string; toolsAsUser: boolean } {
  const last = textOf(afterAnswer(template.segments(BASE, { open: false })).after);
  const middle = (messages: readonly ChatMessage[]) => textOf(afterTurn(template, messages));
  try {
    return { last, middle: middle([TOOL_PROBE, TOOL_PROBE]), toolsAsUser: false };
  } catch (error) {
    if (!(error instanceof RolloutError)) throw error;
    // No tool role, or one that wants calls in a form of its own: results are told as the user's words.
    return { last, middle: middle(asUser([TOOL_PROBE, TOOL_PROBE])), toolsAsUser: true };
  }
}

/**
 * What the template writes after an assistant's turn when `messages` follow it, found by difference: the
 * conversation up to the turn must be how the whole begins.
 */
function afterTurn(template: ChatTemplate, messages: readonly ChatMessage[]): Segment[] {
  // Thoughts that the prompt opens are the sampled turn's, which stays as it was sampled.
  const open = textOf(template.segments(BASE.slice(0, ANSWER), { open: true })).replace(THOUGHTS, '');
  const closed = afterAnswer(template.segments(BASE, { open: false }));
  const whole = afterAnswer(template.segments([...BASE, ...messages], { open: true }));
  if (!whole.before.startsWith(open) || !closed.before.startsWith(open)) {
    throw unsuitable('its chat template changes what precedes a turn once messages follow it');
  }
  return whole.after;
}

function afterAnswer(segments: readonly Segment[]): { before: string; after: Segment[] } {
  const at = segments.findIndex(({ message }) => message === ANSWER);
  if (segments.some(({ message }, index) => message === ANSWER && index !== at)) {
    throw unsuitable('its chat template writes an answer more than once');
  }
  return { before: textOf(segments.slice(0, at)), after: segments.slice(at + 1) };
}

/** Results of tools as messages of the user; such a template wants one of the user's between two answers. */
function asUser(messages: readonly ChatMessage[]): ChatMessage[] {
  const told: ChatMessage[] = [];
  for (const { role, content } of messages) {
    const last = told.at(-1);
    const message: ChatMessage = { role: role === 'tool' ? 'user' : role, content };
    if (last?.role === 'user' && message.role === 'user') {
      told[told.length - 1] = { role: 'user', content: `${last.content}\n\n${content}` };
    } else {
      told.push(message);
    }
  }
  return told;
}

function sameIds(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, index) => id === b[index]);
}
