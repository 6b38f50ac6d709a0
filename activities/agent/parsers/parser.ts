import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';

/** Reads tool calls from what a model sampled. Pure, and never throws: what cannot be read has a status. */
export interface ToolCallParser {
  readonly name: string;
  /** `text` is one turn without its end-of-turn token; calls are in the order of the text. */
  parse(text: string, tools: readonly ToolSpec[], turn: number): { calls: ToolCall[] };
}
