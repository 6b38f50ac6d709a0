import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { checkedCall, isDeep, isUnread, jsonObjectOf, unreadCall } from './call.ts';
import type { ToolCallParser } from './parser.ts';

const CLOSE = '</tool_call>';
const EXAMPLE = '<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>';

/** Between two calls. Within a value it shows that this was not closed: what follows is another call's. */
const NEXT_CALL = /<\/function>\s*<\/tool_call>\s*(?=<tool_call>\s*<function=)/;

/**
 * The format of Qwen3-Coder: `<tool_call>`, `<function=NAME>`, for each argument `<parameter=KEY>`, a line end,
 * the value as it is, a line end, `</parameter>`, then `</function>` and `</tool_call>`. Values are text; those
 * of other types in the tool's schema are read as JSON.
 */
export const qwen3Coder: ToolCallParser = {
  name: 'qwen3-coder',
  native: true,
  parse(text, tools, turn) {
    const calls: ToolCall[] = [];
    let [rest, said] = [text, ''];
    for (;;) {
      const open = /<tool_call>\s*/.exec(rest);
      if (!open) return { calls, said: said + rest };
      const read = callOf(rest.slice(open.index + open[0].length), tools, `${turn}.${calls.length}`);
      calls.push(read.call);
      said += rest.slice(0, isUnread(read.call) ? rest.length - read.rest.length : open.index);
      rest = read.rest;
    }
  },
  write(name, values) {
    const read = jsonObjectOf(values);
    const parameters = Object.entries('value' in read ? read.value : {}).map(([key, value]) => {
      return `<parameter=${key}>\n${typeof value === 'string' ? value : JSON.stringify(value)}\n</parameter>\n`;
    });
    return `<tool_call>\n<function=${name}>\n${parameters.join('')}</function>\n${CLOSE}`;
  },
};

function callOf(text: string, tools: readonly ToolSpec[], callId: string): { call: ToolCall; rest: string } {
  const unclosed = (what: string, rest = '') => ({
    call: unreadCall(callId, 'unclosed', `the call was not closed: end it with ${what}`),
    rest,
  });
  const malformed = (at: string) => {
    const end = at.indexOf(CLOSE);
    if (end < 0) return unclosed(CLOSE);
    const call = unreadCall(callId, 'invalidJson', `a call is written ${EXAMPLE}`);
    return { call, rest: at.slice(end + CLOSE.length) };
  };
  const head = /^<function=([^<>\n]*)>/.exec(text);
  if (!head) return malformed(text);
  const name = (head[1] ?? '').trim();
  const tool = tools.find((candidate) => candidate.name === name);
  const values: Record<string, unknown> = {};
  let rest = text.slice(head[0].length);
  for (;;) {
    rest = rest.trimStart();
    const parameter = /^<parameter=([^<>\n]*)>\n?/.exec(rest);
    if (!parameter) break;
    rest = rest.slice(parameter[0].length);
    const end = endOfValue(rest);
    const next = NEXT_CALL.exec(rest);
    if (end < 0 || (next && next.index < end)) {
      const after = next ? rest.slice(next.index + next[0].length) : '';
      return unclosed('</parameter></function></tool_call>', after);
    }
    const key = (parameter[1] ?? '').trim();
    const value = argumentOf(rest.slice(0, end).replace(/\n$/, ''), tool, key);
    Object.defineProperty(values, key, { value, enumerable: true, configurable: true, writable: true });
    rest = rest.slice(end + '</parameter>'.length);
  }
  const tail = /^<\/function>\s*<\/tool_call>/.exec(rest);
  if (!tail) return malformed(rest);
  return { call: checkedCall(callId, name, values, tools), rest: rest.slice(tail[0].length) };
}

/**
 * Where a value ends; −1 if it does not. Code may hold `</parameter>`: the one that counts is the first that another
 * tag of the format, or nothing, follows.
 */
function endOfValue(text: string): number {
  const end = text.search(/<\/parameter>\s*(?:<parameter=[^<>\n]*>|<\/function>|<\/tool_call>|$)/);
  return end < 0 ? text.indexOf('</parameter>') : end;
}

/** A value by the type that the tool's schema gives it; what cannot be read so stays text, for the schema to refuse. */
function argumentOf(text: string, tool: ToolSpec | undefined, key: string): unknown {
  const properties = (tool?.parameters.properties ?? {}) as Record<string, { type?: unknown } | undefined>;
  const type = Object.hasOwn(properties, key) ? properties[key]?.type : undefined;
  const types = [type ?? 'string'].flat();
  if (types.includes('string') && !(types.includes('null') && text === 'null')) return text;
  try {
    const value: unknown = JSON.parse(text);
    return isDeep(value) ? text : value;
  } catch {
    return text;
  }
}
