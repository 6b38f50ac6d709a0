import type { ToolFormat } from '../../../contracts/tools.ts';
import { fenced } from './fenced.ts';
import { hermes } from './hermes.ts';
import { llama3Json } from './llama3-json.ts';
import type { ToolCallParser } from './parser.ts';
import { qwen3Coder } from './qwen3-coder.ts';

/** The parser of each format of tool calls. */
export const PARSERS: Readonly<Record<ToolFormat, ToolCallParser>> = {
  fenced,
  hermes,
  'qwen3-coder': qwen3Coder,
  'llama3-json': llama3Json,
};
