import { z } from 'zod';
import { messageOf } from '../../../contracts/failures.ts';
import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { problemOfArguments } from './arguments.ts';

/** Deeper values are no arguments of any tool, and what keeps and shows them takes a level of the stack for each. */
const MOST_LEVELS = 100;

/** The call of a tool by name, checked against the tools there are and the schema of its arguments. */
export function checkedCall(
  callId: string,
  name: string,
  values: Record<string, unknown>,
  tools: readonly ToolSpec[],
): ToolCall {
  const call = { callId, tool: name, arguments: values };
  const tool = tools.find((candidate) => candidate.name === name);
  if (!tool) {
    const names = tools.map((candidate) => candidate.name).join(', ');
    return { ...call, status: 'unknownTool', problem: `there is no tool "${name}"; there are: ${names}` };
  }
  const problem = problemOfArguments(tool, values);
  return problem === undefined ? { ...call, status: 'ok' } : { ...call, status: 'wrongArguments', problem };
}

/** A call of which not even the tool could be read. */
export function unreadCall(callId: string, status: 'unclosed' | 'invalidJson', problem: string): ToolCall {
  return { callId, tool: '', arguments: {}, status, problem };
}

/** True for what {@link unreadCall} makes. */
export function isUnread(call: ToolCall | undefined): boolean {
  return call?.tool === '';
}

/** An object from JSON, or what is wrong with it in words for the model. */
export function jsonObjectOf(
  text: string,
): { readonly value: Record<string, unknown> } | { readonly problem: string } {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    return { problem: `the call is not valid JSON: ${messageOf(error)}` };
  }
  if (isDeep(json)) return { problem: `the call is nested more than ${MOST_LEVELS} levels deep` };
  const object = z.record(z.string(), z.unknown()).safeParse(json);
  return object.success
    ? { value: object.data }
    : { problem: 'a call is a JSON object with "name" and its arguments' };
}

/** True if a value from JSON is nested too deeply. */
export function isDeep(value: unknown, levels = MOST_LEVELS): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((child) => isDeep(child, levels - 1));
}

/**
 * Where the object that the text begins with ends; undefined if it does not. Strings are passed over. With `strict` it is
 * given up at what no JSON has between strings: so that many objects that do not end are not each read to the end.
 */
export function endOfObject(text: string, { strict = false } = {}): number | undefined {
  let depth = 0;
  for (const { 0: token, index } of text.matchAll(/"(?:[^"\\]|\\.)*(?:"|$)|[{}<\\]/gs)) {
    if (token === '{') depth++;
    else if (token === '}' && --depth === 0) return index + 1;
    else if (strict && (token === '<' || token === '\\')) return undefined;
  }
  return undefined;
}
