import { randomBytes } from 'node:crypto';
import { Template } from '@huggingface/jinja';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { ModelInfo } from '../../contracts/llm.ts';
import type { ChatMessage } from '../../contracts/trajectory.ts';

/** A stretch of rendered text: the template's own words, or a message's content. */
export interface Segment {
  readonly kind: 'template' | 'content';
  readonly text: string;
  /** Which message the content is of; −1 for the template's words. */
  readonly message: number;
}

/** A model's chat template, rendered so that what it wrote and what it was given stay apart. */
export class ChatTemplate {
  readonly #template: Template;
  readonly #info: ModelInfo;

  /** @throws LlmUnsuitable if the template cannot be read. */
  constructor(info: ModelInfo) {
    this.#info = info;
    try {
      this.#template = new Template(info.chatTemplate);
    } catch (error) {
      throw unsuitable(`its chat template cannot be read: ${messageOf(error)}`, error);
    }
  }

  /** @throws LlmUnsuitable with the template's own words if it refuses the conversation. */
  render(messages: readonly ChatMessage[], addGenerationPrompt: boolean): string {
    try {
      return this.#template.render({
        messages: messages.map(({ role, content }) => ({ role, content })),
        add_generation_prompt: addGenerationPrompt,
        bos_token: this.#info.bosText,
        eos_token: this.#info.eosText,
      });
    } catch (error) {
      const roles = messages.map(({ role }) => role).join(', ');
      throw unsuitable(`its chat template refuses a conversation of ${roles}: ${messageOf(error)}`, error);
    }
  }

  /**
   * The conversation in segments. It is rendered with a mark in place of every content; the marks are then
   * exchanged for the contents and the whole is compared with a rendering of the real thing, so that a
   * template that alters contents (trims them, drops parts) is noticed.
   * @throws LlmUnsuitable if it alters them by more than trimming.
   */
  segments(messages: readonly ChatMessage[], addGenerationPrompt: boolean): Segment[] {
    const nonce = randomBytes(8).toString('hex');
    const marks = messages.map((_, index) => `m${nonce}x${index}m`);
    const marked = this.render(
      messages.map(({ role }, index) => ({ role, content: marks[index] ?? '' })),
      addGenerationPrompt,
    );
    const parts = marked.split(new RegExp(`m${nonce}x(\\d+)m`));
    const filled = (contentOf: (message: ChatMessage) => string): Segment[] =>
      parts.flatMap((text, at): Segment[] => {
        const message = at % 2 === 1 ? Number(text) : -1;
        const real = messages[message];
        if (real) return [{ kind: 'content', text: contentOf(real), message }];
        return text === '' ? [] : [{ kind: 'template', text, message }];
      });
    const expected = this.render(messages, addGenerationPrompt);
    for (const contentOf of [
      ({ content }: ChatMessage) => content,
      ({ content }: ChatMessage) => content.trim(),
    ]) {
      const segments = filled(contentOf);
      if (textOf(segments) === expected) return segments;
    }
    throw unsuitable(
      'its chat template alters the contents of messages, so text cannot be kept apart from it',
    );
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
