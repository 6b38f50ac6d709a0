import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { checkedCall, jsonObjectOf } from './call.ts';
import type { ToolCallParser } from './parser.ts';

interface Block {
  readonly language: string;
  readonly content: string;
  readonly closed: boolean;
}

/**
 * A fenced block is a call of the tool whose fence has its language; blocks in other languages are text.
 * Every closed block counts, in order; a block still open at the end of the turn is `unclosed`.
 */
export const fenced: ToolCallParser = {
  name: 'fenced',
  native: false,
  parse(text, tools, turn) {
    const calls: ToolCall[] = [];
    for (const block of blocksOf(text)) {
      const tool = tools.find(({ fence }) => fence?.language === block.language);
      if (tool) calls.push(callOf(block, tool, `${turn}.${calls.length}`));
    }
    return { calls, said: text };
  },
};

function callOf(block: Block, tool: ToolSpec, callId: string): ToolCall {
  const { language, content, closed } = block;
  const argument = tool.fence?.argument;
  const json = argument === undefined ? jsonObjectOf(content) : { value: { [argument]: content } };
  const call = { callId, tool: tool.name, arguments: 'value' in json ? json.value : {} };
  if (!closed) {
    const problem = `the \`\`\`${language} block was not closed: end it with a line of \`\`\``;
    return { ...call, status: 'unclosed', problem };
  }
  if (content.trim() === '') {
    return { ...call, status: 'wrongArguments', problem: `the \`\`\`${language} block is empty` };
  }
  if ('problem' in json) {
    const problem = `the \`\`\`${language} block must hold a JSON object of the arguments`;
    return { ...call, status: 'invalidJson', problem };
  }
  return checkedCall(callId, tool.name, json.value, [tool]);
}

/**
 * Fenced blocks by CommonMark's rule: a fence of three or more backticks, closed by one at least as long; lines lose
 * as many spaces as the fence is indented by, and the line ends that the fence has.
 */
function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let open: { language: string; fence: string; strip: RegExp; lines: string[] } | undefined;
  for (const line of text.split('\n')) {
    const [, indent = '', fence, info, end] = /^( {0,3})(`{3,})([^`\r]*)(\r?)$/.exec(line) ?? [];
    if (open === undefined) {
      if (fence === undefined) continue;
      const strip = new RegExp(`^ {0,${indent.length}}${end ? '|\\r$' : ''}`, 'g');
      open = { language: info?.trim().split(/\s/)[0] ?? '', fence, strip, lines: [] };
    } else if (fence !== undefined && info?.trim() === '' && fence.length >= open.fence.length) {
      blocks.push({ language: open.language, content: open.lines.join('\n'), closed: true });
      open = undefined;
    } else {
      open.lines.push(line.replace(open.strip, ''));
    }
  }
  if (open) blocks.push({ language: open.language, content: open.lines.join('\n'), closed: false });
  return blocks;
}
