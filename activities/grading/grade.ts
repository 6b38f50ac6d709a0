import { setMaxListeners } from 'node:events';
import type { CreateSandbox } from '../../contracts/sandbox.ts';
import type { ChatMessage, Reward } from '../../contracts/trajectory.ts';
import { callHandler } from '../handlers/call.ts';
import { checkedReward } from '../handlers/checked.ts';
import type { AgentHandler, Judge } from '../handlers/handler.ts';
import type { SandboxClient } from '../sandbox/client.ts';
import { GraderSandboxes } from '../sandbox/for-grader.ts';
import type { PythonPrograms } from './python-pools.ts';

/** What one grade takes. */
export interface GradeInput {
  readonly handler: AgentHandler;
  /** The task's data, as the schema reads it. */
  readonly data: unknown;
  readonly outcome: Readonly<Record<string, unknown>>;
  readonly messages: readonly ChatMessage[];
  readonly python: PythonPrograms;
  readonly judge?: Judge | undefined;
  /** The host that fresh sandboxes come from, and whose they are. */
  readonly sandboxes: SandboxClient | (() => Promise<SandboxClient>);
  readonly owner: Pick<CreateSandbox, 'rolloutId' | 'workflowRunId' | 'attempt'>;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

/**
 * Calls a handler's grader, and ends the sandboxes that it made.
 * @throws RolloutError GraderFailed, StageDeadline, or the type that the grader gave
 */
export async function grade(input: GradeInput): Promise<Reward> {
  const { handler, data, outcome, messages, python, judge, sandboxes, owner, seconds, signal } = input;
  setMaxListeners(0, signal); // as many as calls of sandboxes are under way
  const fresh = new GraderSandboxes(sandboxes, owner, handler.sandbox?.(data) ?? {}, signal);
  const bounds = { signal, seconds, late: 'StageDeadline', thrown: 'GraderFailed' } as const;
  const reward = callHandler('evaluate', bounds, () =>
    handler.evaluate({
      task: data,
      outcome,
      messages,
      sandbox: (spec) => fresh.make(spec),
      each: (items, work, options) => fresh.each(items, work, options),
      python,
      ...(judge && { judge }),
      seconds,
      signal,
    }),
  );
  return checkedReward(await reward.finally(() => fresh.release()));
}
