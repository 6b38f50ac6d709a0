import { z } from 'zod';
import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { checkedCall, endOfObject, isUnread, jsonObjectOf, unreadCall } from './call.ts';
import type { ToolCallParser } from './parser.ts';

/** Llama opens calls of tools with this token, or with nothing. */
const TAG = '<|python_tag|>';

/** How a turn begins that is meant as a call, even if it is no JSON. */
const BEGINS = /^\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:/;

const Body = z.object({
  name: z.string(),
  parameters: z.record(z.string(), z.unknown()).optional(),
  arguments: z.record(z.string(), z.unknown()).optional(),
});

/**
 * The format of Llama 3: a turn that is `{"name": …, "parameters": {…}}` and nothing else, several separated
 * by `;`. A turn that begins with other words, or with an object that has no "name", is an answer.
 */
export const llama3Json: ToolCallParser = {
  name: 'llama3-json',
  native: true,
  parse(text, tools, turn) {
    const tagged = text.trimStart().startsWith(TAG);
    let rest = tagged ? text.trimStart().slice(TAG.length) : text;
    const calls: ToolCall[] = [];
    let said = '';
    for (;;) {
      rest = rest.replace(/^[\s;]+/, '');
      const callId = `${turn}.${calls.length}`;
      if (!rest.startsWith('{')) {
        if (tagged && calls.length === 0) {
          const problem = `after ${TAG} comes a JSON object with "name" and "parameters"`;
          return { calls: [unreadCall(callId, 'invalidJson', problem)], said: text };
        }
        return { calls, said: calls.length === 0 ? text : said + rest };
      }
      const end = endOfObject(rest);
      const object = rest.slice(0, end ?? rest.length);
      // An answer in JSON is no call; what names something is meant as one.
      if (!tagged && !BEGINS.test(object) && !namesTool(object)) {
        return { calls, said: calls.length === 0 ? text : said + rest };
      }
      if (end === undefined) {
        calls.push(unreadCall(callId, 'unclosed', 'the call was not closed: end its JSON object with }'));
        return { calls, said: said + rest };
      }
      const call = callOf(object, tools, callId);
      calls.push(call);
      if (isUnread(call)) said += object;
      rest = rest.slice(end);
    }
  },
  write: (name, values) => `{"name": ${JSON.stringify(name)}, "parameters": ${values}}`,
};

function callOf(text: string, tools: readonly ToolSpec[], callId: string): ToolCall {
  const json = jsonObjectOf(text);
  if ('problem' in json) return unreadCall(callId, 'invalidJson', json.problem);
  const body = Body.safeParse(json.value);
  if (!body.success) {
    const problem = 'a call is an object with "name" (a string) and "parameters" (an object)';
    return unreadCall(callId, 'invalidJson', problem);
  }
  const { name, parameters, arguments: values } = body.data;
  return checkedCall(callId, name, parameters ?? values ?? {}, tools);
}

function namesTool(text: string): boolean {
  const json = jsonObjectOf(text);
  return 'value' in json && Body.safeParse(json.value).success;
}
