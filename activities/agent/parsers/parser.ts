import type { ToolCall, ToolSpec } from '../../../contracts/tools.ts';

/** What was read from a turn. */
export interface ParsedTurn {
  readonly calls: ToolCall[];
  /** The text beside the calls that name a tool; where the handler's prompt describes the format, all of it. */
  readonly said: string;
}

/** Reads tool calls from what a model sampled. Pure, and never throws: what cannot be read has a status. */
export interface ToolCallParser {
  readonly name: string;
  /**
   * True for the format that a model was trained on: its chat template then describes the tools. False for one
   * that the handler's prompt describes.
   */
  readonly native: boolean;
  /** `text` is one turn without its end-of-turn token; calls are in the order of the text. */
  parse(text: string, tools: readonly ToolSpec[], turn: number): ParsedTurn;
  /**
   * A call as text, for a conversation from outside that holds some; `values` is the JSON of its arguments. Absent where
   * the handler's prompt describes the format.
   */
  write?(name: string, values: string): string;
}
