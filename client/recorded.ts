import { grade } from '../activities/grading/grade.ts';
import type { HandlerRegistry } from '../activities/handlers/registry.ts';
import { recordedOutcome } from '../activities/handlers/reward-of.ts';
import type { SandboxClient } from '../activities/sandbox/client.ts';
import { type HandlerDeadlines, settledDeadlines } from '../contracts/deadlines.ts';
import type { Task } from '../contracts/task.ts';
import type { Reward } from '../contracts/trajectory.ts';

/** What grading a recorded answer takes besides the answer. */
export interface RecordedOptions {
  readonly registry: HandlerRegistry;
  readonly sandboxes: () => Promise<SandboxClient>;
  /** Names this grade; letters, digits and `._:-`. */
  readonly id: string;
  /** What is absent is as the handler asks. */
  readonly deadlines?: HandlerDeadlines;
  readonly signal: AbortSignal;
}

/**
 * Grades an answer that was recorded elsewhere, as the rollout of an agent would be that said it and did nothing else.
 * @throws RolloutError with the type of what failed
 */
export async function gradeRecorded(task: Task, response: string, options: RecordedOptions): Promise<Reward> {
  const { registry, sandboxes, id, deadlines, signal } = options;
  const { handler, data } = registry.open(task);
  const { evaluateSeconds: seconds } = settledDeadlines(deadlines ?? {}, handler.deadlines?.(data));
  return grade({
    ...(await recordedOutcome(handler, data, response)),
    ...{ handler, data, sandboxes, seconds, signal, python: registry.python },
    owner: { rolloutId: id, workflowRunId: 'grade', attempt: 1 },
  });
}
