import type { EndpointAnswer } from '../../contracts/endpoint.ts';
import type { LedgerSampled } from '../../contracts/ledger.ts';
import { isUnread } from '../agent/parsers/call.ts';
import type { ToolCallParser } from '../agent/parsers/parser.ts';
import { afterThoughts } from '../agent/parsers/thoughts.ts';
import type { Refused } from './refused.ts';
import type { Asked, Said } from './request.ts';

/** How the turns of a policy are read. */
export interface Reading {
  readonly parser: ToolCallParser;
  /** The template begins the model's thoughts for it. */
  readonly opensThoughts: boolean;
}

/** Answer of a call, without its number. */
export type Answer = Omit<EndpointAnswer, 'fence' | 'id'>;

/** What a turn says to the program: the text beside its thoughts and its calls, and the calls that could be read. */
export function saidIn({ text, calls }: LedgerSampled, { parser, opensThoughts }: Reading): Said {
  const visible = afterThoughts(text, opensThoughts);
  const readable = calls.filter((call) => !isUnread(call));
  const said = readable.length === 0 ? visible : parser.parse(visible, [], 0).said.trim();
  return {
    role: 'assistant',
    content: visible === text ? said : said.trim(),
    calls: readable.map((call) => ({ name: call.tool, arguments: JSON.stringify(call.arguments) })),
  };
}

/** The answer that a recorded turn makes, as one object or as events. */
export function replyOf(
  turn: { readonly record: LedgerSampled; readonly promptTokens: number; readonly sampledTokens: number },
  { stream, streamUsage }: Pick<Asked, 'stream' | 'streamUsage'>,
  reading: Reading,
  model: string,
): Answer {
  const { record } = turn;
  const { sequence = 0 } = record;
  const { content, calls } = saidIn(record, reading);
  const thoughts = thoughtsIn(record.text, reading.opensThoughts);
  const message = {
    role: 'assistant',
    content: content === '' && calls.length > 0 ? null : content,
    // As vLLM, SGLang and DeepSeek write them; others leave the field alone.
    ...(thoughts === '' ? {} : { reasoning_content: thoughts }),
    ...(calls.length === 0
      ? {}
      : {
          tool_calls: calls.map((call, index) => ({
            id: `call_${sequence}_${record.turn}_${index}`,
            type: 'function',
            function: call,
          })),
        }),
  };
  const finish = calls.length > 0 ? 'tool_calls' : record.finish === 'length' ? 'length' : 'stop';
  const head = {
    id: `chatcmpl-${record.asked?.id ?? ''}`,
    created: Math.floor(Date.parse(record.startedAt) / 1000),
    model,
  };
  const usage = {
    prompt_tokens: turn.promptTokens,
    completion_tokens: turn.sampledTokens,
    total_tokens: turn.promptTokens + turn.sampledTokens,
  };
  if (!stream) {
    const choice = { index: 0, message, logprobs: null, finish_reason: finish };
    return json(200, { ...head, object: 'chat.completion', choices: [choice], usage });
  }
  const chunk = { ...head, object: 'chat.completion.chunk' };
  const { tool_calls: called, ...words } = message;
  const delta = {
    ...words,
    ...(called ? { tool_calls: called.map((call, index) => ({ index, ...call })) } : {}),
  };
  const events = [
    { ...chunk, choices: [{ index: 0, delta, finish_reason: null }] },
    { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: finish }] },
    ...(streamUsage ? [{ ...chunk, choices: [], usage }] : []),
  ];
  const body = [...events.map((event) => JSON.stringify(event)), '[DONE]'].map((data) => `data: ${data}\n\n`);
  return { status: 200, contentType: 'text/event-stream', body: body.join('') };
}

/** A refusal as OpenAI's clients read it. */
export function refusalOf({ status, message, param, code }: Refused): Answer {
  const type = status === 403 ? 'permission_error' : 'invalid_request_error';
  return json(status, { error: { message, type, param, code } });
}

function json(status: number, body: unknown): Answer {
  return { status, contentType: 'application/json', body: JSON.stringify(body) };
}

function thoughtsIn(text: string, opensThoughts: boolean): string {
  const hidden = text.slice(0, text.length - afterThoughts(text, opensThoughts).length);
  return hidden
    .replace(/^\s*<think>/, '')
    .replace(/<\/think>$/, '')
    .trim();
}
