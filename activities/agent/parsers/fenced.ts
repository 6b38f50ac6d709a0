import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';
import { problemOfArguments } from './arguments.ts';
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
  parse(text, tools, turn) {
    const calls: ToolCall[] = [];
    for (const block of blocksOf(text)) {
      const tool = tools.find(({ fence }) => fence?.language === block.language);
      if (tool?.fence) calls.push(callOf(block, tool, tool.fence.argument, `${turn}.${calls.length}`));
    }
    return { calls };
  },
};

function callOf(block: Block, tool: ToolSpec, argument: string, callId: string): ToolCall {
  const call = { callId, tool: tool.name, arguments: { [argument]: block.content } };
  if (!block.closed) {
    const problem = `the \`\`\`${block.language} block was not closed: end it with a line of \`\`\``;
    return { ...call, status: 'unclosed', problem };
  }
  const problem =
    block.content.trim() === ''
      ? `the \`\`\`${block.language} block is empty`
      : problemOfArguments(tool, call.arguments);
  return problem === undefined ? { ...call, status: 'ok' } : { ...call, status: 'wrongArguments', problem };
}

/** Fenced blocks by CommonMark's rule: a fence of three or more backticks, closed by one at least as long. */
function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let open: { language: string; fence: string; lines: string[] } | undefined;
  for (const line of text.split(/\r?\n/)) {
    const [, fence, info] = /^ {0,3}(`{3,})([^`]*)$/.exec(line) ?? [];
    if (open === undefined) {
      if (fence !== undefined) open = { language: info?.trim().split(/\s/)[0] ?? '', fence, lines: [] };
    } else if (fence !== undefined && info?.trim() === '' && fence.length >= open.fence.length) {
      blocks.push({ language: open.language, content: open.lines.join('\n'), closed: true });
      open = undefined;
    } else {
      open.lines.push(line);
    }
  }
  if (open) blocks.push({ language: open.language, content: open.lines.join('\n'), closed: false });
  return blocks;
}
