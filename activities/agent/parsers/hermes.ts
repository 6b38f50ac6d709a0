import { z } from 'zod';
import { messageOf } from '../../../contracts/failures.ts';
import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { problemOfArguments } from './arguments.ts';
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
  parse(text, tools, turn) {
    const calls = text
      .split(OPEN)
      .slice(1)
      .map((rest, index) => callOf(rest, tools, `${turn}.${index}`));
    return { calls };
  },
};

function callOf(rest: string, tools: readonly ToolSpec[], callId: string): ToolCall {
  const unread = { callId, tool: '', arguments: {} };
  const end = rest.indexOf(CLOSE);
  if (end < 0) {
    return { ...unread, status: 'unclosed', problem: `the call was not closed: end it with ${CLOSE}` };
  }
  let json: unknown;
  try {
    json = JSON.parse(rest.slice(0, end));
  } catch (error) {
    return { ...unread, status: 'invalidJson', problem: `the call is not valid JSON: ${messageOf(error)}` };
  }
  const body = Body.safeParse(json);
  if (!body.success) {
    const problem = 'a call is an object with "name" (a string) and "arguments" (an object)';
    return { ...unread, status: 'invalidJson', problem };
  }
  const call = { callId, tool: body.data.name, arguments: body.data.arguments };
  const tool = tools.find(({ name }) => name === call.tool);
  if (!tool) {
    const names = tools.map(({ name }) => name).join(', ');
    return {
      ...call,
      status: 'unknownTool',
      problem: `there is no tool "${call.tool}"; there are: ${names}`,
    };
  }
  const problem = problemOfArguments(tool, call.arguments);
  return problem === undefined ? { ...call, status: 'ok' } : { ...call, status: 'wrongArguments', problem };
}
