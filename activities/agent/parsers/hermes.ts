import { z } from 'zod';
import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { checkedCall, isUnread, jsonObjectOf, unreadCall } from './call.ts';
import type { ToolCallParser } from './parser.ts';

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';

const Body = z.object({
  name: z.string(),
  arguments: z.record(z.string(), z.unknown()).default({}),
});

/** The format of Hermes and Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of them. */
export const hermes: ToolCallParser = {
  name: 'hermes',
  native: true,
  parse(text, tools, turn) {
    const [before = '', ...parts] = text.split(OPEN);
    const calls = parts.map((part, index) => callOf(part, tools, `${turn}.${index}`));
    const beside = parts.map((part, index) =>
      isUnread(calls[index]) ? OPEN + part : part.slice(part.indexOf(CLOSE) + CLOSE.length),
    );
    return { calls, said: before + beside.join('') };
  },
  write: (name, values) => `${OPEN}\n{"name": ${JSON.stringify(name)}, "arguments": ${values}}\n${CLOSE}`,
};

function callOf(rest: string, tools: readonly ToolSpec[], callId: string): ToolCall {
  const end = rest.indexOf(CLOSE);
  if (end < 0) return unreadCall(callId, 'unclosed', `the call was not closed: end it with ${CLOSE}`);
  const json = jsonObjectOf(rest.slice(0, end));
  if ('problem' in json) return unreadCall(callId, 'invalidJson', json.problem);
  const body = Body.safeParse(json.value);
  if (!body.success) {
    const problem = 'a call is an object with "name" (a string) and "arguments" (an object)';
    return unreadCall(callId, 'invalidJson', problem);
  }
  return checkedCall(callId, body.data.name, body.data.arguments, tools);
}
