import { RolloutError } from '../../contracts/failures.ts';
import type { SandboxSpec } from '../../contracts/sandbox.ts';
import type { ToolResult, ToolSpec } from '../../contracts/tools.ts';
import type { BoundSandbox } from '../sandbox/bound.ts';

/** What a tool may use while it runs. */
export interface ToolContext {
  readonly sandbox: BoundSandbox;
  readonly callId: string;
  readonly timeoutMs: number;
}

/** What a tool returns; the loop adds the rest of the ToolResult. */
export type ToolOutcome = Pick<ToolResult, 'status' | 'exitCode' | 'text' | 'ends'>;

/** What a host has for tools. */
export interface ToolHost {
  /** Absolute path of the set-up's Python, which is of a virtual environment and has ipykernel. */
  readonly python: string;
}

/** Something the agent can call. */
export interface Tool {
  readonly spec: ToolSpec;
  /** What it must find in the sandbox, on a host that has these things. Default: nothing more than the handler. */
  sandbox?(host: ToolHost): Partial<Pick<SandboxSpec, 'binds' | 'environment'>>;
  /** The arguments have been checked against the spec's schema. Throwing fails the run, not the call. */
  run(args: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome>;
}

/** Something in the sandbox that offers tools, known only once it runs. */
export interface ToolServer {
  /** As of {@link Tool}. */
  sandbox?(host: ToolHost): Partial<Pick<SandboxSpec, 'binds' | 'environment'>>;
  /** Called at the start of each run, also of one that goes on after a death: the same tools must come of it. */
  open(sandbox: BoundSandbox): Promise<Tool[]>;
}

/**
 * All tools, those of servers where these stand.
 * @throws RolloutError HandlerFailed if two have one name: only one of them could be called
 */
export async function openTools(
  offered: readonly (Tool | ToolServer)[],
  sandbox: BoundSandbox,
): Promise<Tool[]> {
  const tools: Tool[] = [];
  for (const one of offered) tools.push(...('open' in one ? await one.open(sandbox) : [one]));
  const names = tools.map(({ spec }) => spec.name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new RolloutError('HandlerFailed', `two tools are called ${twice}`);
  return tools;
}
