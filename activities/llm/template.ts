import { randomBytes } from 'node:crypto';
import { Template } from '@huggingface/jinja';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { ToolSpec } from '../../contracts/tools.ts';
import type { ChatMessage } from '../../contracts/trajectory.ts';
import type { ChatFormat } from './codec.ts';
import { fitContents } from './contents.ts';

/** A stretch of rendered text: the template's own words, or a message's content. */
export interface Segment {
  readonly kind: 'template' | 'content';
  readonly text: string;
  /** Which message the content is of; −1 for the template's words. */
  readonly message: number;
}

/** What a conversation is rendered with. */
export interface RenderOptions {
  /** Opens the assistant's next turn at the end. */
  readonly open: boolean;
  /** Tools that the template itself describes to the model. */
  readonly tools?: readonly ToolSpec[];
}

/**
 * The day that templates print where they ask for today's: a prompt must not change while a rollout is
 * paused over midnight, nor between the samples of a group.
 */
const TEMPLATE_DATE = new Date('2025-01-01T00:00:00Z');

/** A model's chat template, rendered so that what it wrote and what it was given stay apart. */
export class ChatTemplate {
  readonly #template: Template;
  readonly #format: ChatFormat;

  /** @throws LlmUnsuitable if the template cannot be read. */
  constructor(format: ChatFormat) {
    this.#format = format;
    try {
      // The library has a clock of its own under the usual name and lets nobody replace it.
      this.#template = new Template(format.template.replaceAll(/\bstrftime_now\b/g, 'strftime_fixed'));
    } catch (error) {
      throw unsuitable(`its chat template cannot be read: ${messageOf(error)}`, error);
    }
  }

  /** @throws LlmUnsuitable with the template's own words if it refuses the conversation. */
  render(messages: readonly ChatMessage[], { open, tools }: RenderOptions): string {
    try {
      return this.#template.render({
        bos_token: this.#format.bosText,
        eos_token: this.#format.eosText,
        ...this.#format.variables,
        messages: messages.map(({ role, content }) => ({ role, content })),
        add_generation_prompt: open,
        // None where there are none, as transformers says it: templates ask "is not none", which what is undefined is not.
        tools: tools && tools.length > 0 ? tools.map(functionOf) : null,
        documents: null,
        strftime_fixed: (format: string) => strftime(TEMPLATE_DATE, format),
      });
    } catch (error) {
      const roles = messages.map(({ role }) => role).join(', ');
      throw unsuitable(`its chat template refuses a conversation of ${roles}: ${messageOf(error)}`, error);
    }
  }

  /**
   * The conversation in segments. It is rendered with a mark in place of every content; the marks are then
   * exchanged for the contents and the whole is compared with a rendering of the real thing, so that a
   * template that alters contents (drops parts, strips thoughts) is noticed.
   * @throws LlmUnsuitable if it alters them by more than trimming them or writing them as JSON.
   */
  segments(messages: readonly ChatMessage[], options: RenderOptions): Segment[] {
    const nonce = randomBytes(8).toString('hex');
    const marked = this.render(
      // Nothing needs no mark, and templates ask whether there is a content.
      messages.map(({ role, content }, index) => ({
        role,
        content: content === '' ? '' : `m${nonce}x${index}m`,
      })),
      options,
    );
    const parts = marked.split(new RegExp(`m${nonce}x(\\d+)m`));
    const marks = parts.filter((_, at) => at % 2 === 1).map(Number);
    const words = parts.filter((_, at) => at % 2 === 0);
    const left = messages.findIndex(({ content }, index) => content !== '' && !marks.includes(index));
    if (left >= 0) {
      throw unsuitable(`its chat template leaves out or alters message ${left} (${messages[left]?.role})`);
    }
    const contents = fitContents(
      words,
      marks.map((message) => messages[message]?.content ?? ''),
      this.render(messages, options),
    );
    if (!contents) {
      throw unsuitable(
        'its chat template alters the contents of messages, so text cannot be kept apart from it',
      );
    }
    return words.flatMap((text, at): Segment[] => {
      const message = marks[at];
      const template: Segment[] = text === '' ? [] : [{ kind: 'template', text, message: -1 }];
      if (message === undefined) return template;
      return [...template, { kind: 'content', text: contents[at] ?? '', message }];
    });
  }
}

/** The text of segments in a row. */
export function textOf(segments: readonly Segment[]): string {
  return segments.map(({ text }) => text).join('');
}

/** The failure of a model or template that cannot be used token-exactly. */
export function unsuitable(why: string, cause?: unknown): RolloutError {
  return new RolloutError('LlmUnsuitable', `the model cannot be used: ${why}`, { cause });
}

/** A tool as chat templates expect it. */
function functionOf({ name, description, parameters }: ToolSpec) {
  return { type: 'function', function: { name, description, parameters } };
}

/** The few directives of strftime that chat templates use. */
function strftime(date: Date, format: string): string {
  const part = (options: Intl.DateTimeFormatOptions) =>
    new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC' }).format(date);
  const parts: Record<string, string> = {
    Y: String(date.getUTCFullYear()),
    m: String(date.getUTCMonth() + 1).padStart(2, '0'),
    d: String(date.getUTCDate()).padStart(2, '0'),
    b: part({ month: 'short' }),
    B: part({ month: 'long' }),
    A: part({ weekday: 'long' }),
    a: part({ weekday: 'short' }),
    H: '00',
    M: '00',
    S: '00',
    '%': '%',
  };
  return format.replace(/%([a-zA-Z%])/g, (whole, letter: string) => parts[letter] ?? whole);
}
