/**
 * What a handler module outside this project imports: `import { defineHandler, bash } from
 * 'durable-rollouts/handler'`.
 */
export { z } from 'zod';
export type { ChatMessage, Reward } from '../../contracts/trajectory.ts';
export type { PythonPrograms } from '../grading/python-pools.ts';
export type { BoundSandbox } from '../sandbox/bound.ts';
export { bash } from '../tools/bash.ts';
export { editor } from '../tools/editor.ts';
export { finish } from '../tools/finish.ts';
export { ipython } from '../tools/ipython.ts';
export { type McpServer, mcp } from '../tools/mcp.ts';
export { pythonBinds } from '../tools/python-binds.ts';
export type { Tool, ToolContext, ToolHost, ToolOutcome, ToolServer } from '../tools/tool.ts';
export {
  type AgentEndpoint,
  type AgentHandler,
  type CheckContext,
  defineHandler,
  type EvaluateContext,
  type InitContext,
  type OutcomeContext,
  type RecordedContext,
  type RunContext,
} from './handler.ts';
export { loadPrompt, parsePrompt } from './prompt-file.ts';
export { rewardOf } from './reward-of.ts';
