import { z } from 'zod';
import type { HandlerDeadlines } from '../../contracts/deadlines.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { Deadlines } from '../../contracts/request.ts';
import { ChatMessage, Reward } from '../../contracts/trajectory.ts';

/** An outcome travels with every trajectory: a few kilobytes, and files elsewhere. */
const MOST_OUTCOME_BYTES = 256 * 1024;

/** Characters of an answer that the usual outcome keeps, from its end. */
const LONGEST_ANSWER = 60_000;

/** The outcome of a handler that takes none: what the agent said last. What a policy says is never too long for it. */
export function usualOutcome(answer: string | null): Record<string, unknown> {
  return { answer: answer === null ? null : answer.slice(-LONGEST_ANSWER) };
}

const AskedDeadlines = Deadlines.pick({ runSeconds: true, evaluateSeconds: true }).strict();

/** The deadlines that a handler asks for. @throws RolloutError HandlerFailed that names what is none */
export function checkedDeadlines(asked: unknown): HandlerDeadlines {
  const parsed = AskedDeadlines.safeParse(asked);
  if (!parsed.success) throw new RolloutError('HandlerFailed', `deadlines: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

/** The opening messages; a model can't be asked about nothing. */
export function checkedPrompt(prompt: unknown): ChatMessage[] {
  const parsed = z.array(ChatMessage).min(1).safeParse(prompt);
  if (!parsed.success) throw new RolloutError('HandlerFailed', `prompt: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

/** The outcome as JSON carries it. @throws RolloutError HandlerFailed if it can't, or is too large. */
export function checkedOutcome(outcome: unknown): Record<string, unknown> {
  let text: string;
  try {
    text = JSON.stringify(outcome);
  } catch (error) {
    throw new RolloutError('HandlerFailed', `outcome is no JSON: ${messageOf(error)}`, { cause: error });
  }
  const parsed = z.record(z.string(), z.unknown()).safeParse(outcome);
  if (!parsed.success) throw new RolloutError('HandlerFailed', 'outcome: expected an object');
  if (text.length > MOST_OUTCOME_BYTES) {
    throw new RolloutError(
      'HandlerFailed',
      `outcome has ${text.length} characters of JSON: keep files elsewhere`,
    );
  }
  return JSON.parse(text);
}

/** A grader that returns no number has failed; NaN is no reward. */
export function checkedReward(reward: unknown): Reward {
  const parsed = Reward.safeParse(reward);
  if (!parsed.success) {
    throw new RolloutError('GraderFailed', `the grader returned no reward: ${messageOf(parsed.error)}`);
  }
  return parsed.data;
}
