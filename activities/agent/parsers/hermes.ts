import { z } from 'zod';
import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { checkedCall, endOfObject, isUnread, jsonObjectOf, unreadCall } from './call.ts';
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
    const calls: ToolCall[] = [];
    const closed = text.lastIndexOf(CLOSE);
    let [rest, said] = [text, ''];
    for (;;) {
      const open = rest.indexOf(OPEN);
      if (open < 0) return { calls, said: said + rest };
      const inside = rest.slice(open + OPEN.length);
      const { json, length } = bodyOf(inside, text.length - inside.length <= closed);
      const call = callOf(json, tools, `${turn}.${calls.length}`);
      calls.push(call);
      said += rest.slice(0, open) + (isUnread(call) ? OPEN + inside.slice(0, length) : '');
      rest = inside.slice(length);
    }
  },
  write: (name, values) => `${OPEN}\n{"name": ${JSON.stringify(name)}, "arguments": ${values}}\n${CLOSE}`,
};

/** What stands in a call, undefined if it was not closed, and where what follows it begins. */
function bodyOf(inside: string, mayClose: boolean): { json: string | undefined; length: number } {
  // Code in a string may name the tags: they count only after the object. What is no object ends at the first.
  const end = mayClose && /^\s*\{/.test(inside) ? endOfObject(inside, { strict: true }) : undefined;
  const closing = end === undefined ? null : /^\s*<\/tool_call>/.exec(inside.slice(end));
  if (end !== undefined && closing) return { json: inside.slice(0, end), length: end + closing[0].length };
  const [part = ''] = inside.split(OPEN, 1);
  const close = part.indexOf(CLOSE);
  return close < 0
    ? { json: undefined, length: part.length }
    : { json: part.slice(0, close), length: close + CLOSE.length };
}

function callOf(body: string | undefined, tools: readonly ToolSpec[], callId: string): ToolCall {
  if (body === undefined) {
    return unreadCall(callId, 'unclosed', `the call was not closed: end it with ${CLOSE}`);
  }
  const json = jsonObjectOf(body);
  if ('problem' in json) return unreadCall(callId, 'invalidJson', json.problem);
  const named = Body.safeParse(json.value);
  if (!named.success) {
    const problem = 'a call is an object with "name" (a string) and "arguments" (an object)';
    return unreadCall(callId, 'invalidJson', problem);
  }
  return checkedCall(callId, named.data.name, named.data.arguments, tools);
}
