import type { ToolResult, ToolSpec } from '../../contracts/tools.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';

/** What a tool may use while it runs. */
export interface ToolContext {
  readonly sandbox: BoundSandbox;
  readonly callId: string;
  readonly timeoutMs: number;
}

/** What a tool returns; the loop adds the rest of the ToolResult. */
export type ToolOutcome = Pick<ToolResult, 'status' | 'exitCode' | 'text'>;

/** Something the agent can call. */
export interface Tool {
  readonly spec: ToolSpec;
  /** The arguments have been checked against the spec's schema. Throwing fails the run, not the call. */
  run(args: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome>;
}
