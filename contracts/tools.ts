import { z } from 'zod';

/** Ways in which models write tool calls. */
export const ToolFormat = z.enum(['fenced', 'hermes', 'qwen3-coder', 'llama3-json']);
export type ToolFormat = z.infer<typeof ToolFormat>;

/** What became of reading a call. Anything but `ok` is not run. */
export const ToolCallStatus = z.enum(['ok', 'unclosed', 'invalidJson', 'unknownTool', 'wrongArguments']);
export type ToolCallStatus = z.infer<typeof ToolCallStatus>;

/** A tool call read from sampled text, with what became of reading it. */
export const ToolCall = z.object({
  /** Unique within the rollout: `<turn>.<index>`. */
  callId: z.string(),
  tool: z.string(),
  arguments: z.record(z.string(), z.unknown()),
  /** Anything but `ok` goes back to the model as its `problem`. */
  status: ToolCallStatus,
  problem: z.string().optional(),
});
export type ToolCall = z.infer<typeof ToolCall>;

/** How a tool call ended. */
export const ToolResult = z.object({
  callId: z.string(),
  tool: z.string(),
  /**
   * `ok`: ran, whatever its exit status; `timeout`: was interrupted; `restarted`: its session had to be
   * started anew; `refused`: never ran.
   */
  status: z.enum(['ok', 'timeout', 'restarted', 'refused']),
  exitCode: z.int().nullable(),
  /** What the model is shown. */
  text: z.string(),
  ms: z.number().min(0),
  /** True if the agent is done with this call. */
  ends: z.literal(true).optional(),
});
export type ToolResult = z.infer<typeof ToolResult>;

/** What the model and the parsers know of a tool. */
export interface ToolSpec {
  readonly name: string;
  readonly description: string;
  /** JSON schema of the arguments, an object. */
  readonly parameters: Record<string, unknown>;
  /** The tool says what is wrong with arguments: the schema, which strangers wrote, is shown to the model alone. */
  readonly checksItself?: true;
  /**
   * A fenced block of this language is a call whose whole content is the named argument; if none is named, it
   * is a JSON object of all arguments.
   */
  readonly fence?: { readonly language: string; readonly argument?: string };
}
