import { gunzipSync } from 'node:zlib';
import { z } from 'zod';
import type { RolloutResult } from '../../contracts/result.ts';
import type { ToolSpec } from '../../contracts/tools.ts';
import type { Trajectory, Turn } from '../../contracts/trajectory.ts';

const Message = z.object({
  role: z.string(),
  content: z.string(),
  tool_calls: z
    .array(z.object({ name: z.string(), arguments: z.record(z.string(), z.unknown()) }))
    .optional(),
  /** Assistant: what was sampled. Others: what the messages before the next sample added to the prompt. */
  token_ids: z.array(z.int()),
  /** Assistant: the whole prompt that it was sampled after. */
  input_ids: z.array(z.int()).nullable(),
  /** Assistant: aligned with `token_ids`. */
  logprobs: z.array(z.number()).nullable(),
});
type Message = z.infer<typeof Message>;

/** What `/process` answers: ProRL Agent's fields, and `reward` and `rollout_id`, which it has not. */
export const ProcessAnswer = z.object({
  instance_id: z.union([z.string(), z.int()]).nullable(),
  trajectory_id: z.union([z.string(), z.int()]).nullable(),
  rollout_id: z.string(),
  resolved: z.boolean(),
  reward: z.number().nullable(),
  git_patch: z.string().nullable(),
  success: z.boolean(),
  error: z.string().nullable(),
  finish: z.boolean(),
  end_properly: z.boolean(),
  critical_error: z.enum(['init', 'run', 'eval', 'timeout', 'final_result']).nullable(),
  filter: z.boolean(),
  messages: z.array(Message),
  tools: z.array(z.unknown()),
  timing: z.object({
    init_time: z.number(),
    run_time: z.number(),
    eval_time: z.number(),
    others_time: z.number(),
    counted_elapsed: z.number(),
    timeout_triggered: z.boolean(),
  }),
});
export type ProcessAnswer = z.infer<typeof ProcessAnswer>;
export type CriticalError = ProcessAnswer['critical_error'];

/** What an answer is made of. */
export interface AnswerParts {
  readonly instance: {
    readonly instance_id?: string | number | null | undefined;
    readonly trajectory_id?: string | number | null | undefined;
  };
  readonly record: RolloutResult;
  /** The last sequence of the stored trajectory, if there is one. */
  readonly sequence: Trajectory | undefined;
  /** What the agent left to the grader. */
  readonly outcome: Readonly<Record<string, unknown>>;
  readonly tools: readonly ToolSpec[];
  /** Why the trajectory or the outcome could not be read. */
  readonly unread?: string;
}

/** The answer for a rollout that has ended. Pure. */
export function answerOf(parts: AnswerParts): ProcessAnswer {
  const { instance, record, sequence, outcome, tools, unread } = parts;
  const critical = unread === undefined ? criticalErrorOf(record) : 'final_result';
  const { initMs, runMs, evaluateMs, totalMs } = record.timings;
  const counted = initMs + runMs + evaluateMs;
  return {
    instance_id: instance.instance_id ?? null,
    trajectory_id: instance.trajectory_id ?? null,
    rollout_id: record.rolloutId,
    resolved: critical === null && (record.reward?.total ?? 0) >= 1,
    reward: record.reward?.total ?? null,
    git_patch: patchOf(outcome),
    success: critical === null && record.outcome === 'completed',
    error: unread ?? errorOf(record),
    finish: sequence?.finish_reason === 'finished',
    end_properly: endedProperly(sequence),
    critical_error: critical,
    // What says nothing of the policy, or was cut at a length, is not to be trained on.
    filter: critical !== null || record.truncation === 'tokens' || record.truncation === 'context',
    messages: sequence ? messagesOf(sequence) : [],
    tools: tools.map(({ name, description, parameters }) => ({
      type: 'function',
      function: { name, description, parameters },
    })),
    timing: {
      init_time: initMs / 1000,
      run_time: runMs / 1000,
      eval_time: evaluateMs / 1000,
      others_time: Math.max(0, totalMs - counted) / 1000,
      counted_elapsed: counted / 1000,
      timeout_triggered: critical === 'timeout',
    },
  };
}

const STAGE_ERRORS = { queued: 'init', init: 'init', run: 'run', paused: 'run', evaluate: 'eval' } as const;
const TIMEOUTS: readonly string[] = ['StageDeadline', 'QueueTimeout'];

/** Where a rollout ended that says nothing of the policy; a deadline and a stop are `timeout`, wherever they were. */
export function criticalErrorOf({ failure, cancel, truncation }: RolloutResult): CriticalError {
  if (failure) return TIMEOUTS.includes(failure.type) ? 'timeout' : STAGE_ERRORS[failure.stage];
  if (cancel) {
    const outOfTime = cancel.reason === 'deadline' || cancel.reason === 'shutdown';
    return outOfTime ? 'timeout' : STAGE_ERRORS[cancel.stage];
  }
  return truncation === 'deadline' ? 'timeout' : null;
}

function errorOf({ failure, cancel, truncation }: RolloutResult): string | null {
  if (failure) return `${failure.type}: ${failure.message}`;
  if (cancel) return `cancelled: ${cancel.reason}`;
  return truncation ? `truncated: ${truncation}` : null;
}

function endedProperly(sequence: Trajectory | undefined): boolean {
  const last = sequence?.turns.at(-1);
  if (!sequence || !last) return false;
  return last.finish === 'stop' && sequence.truncated !== 'tokens' && sequence.truncated !== 'context';
}

/** First characters of what gzip packed, in Base64. */
const PACKED = 'H4sI';

/** The patch in a handler's outcome, packed as the swe handler has it or plain. */
function patchOf({ patch }: AnswerParts['outcome']): string | null {
  if (typeof patch !== 'string') return null;
  return patch.startsWith(PACKED) ? gunzipSync(Buffer.from(patch, 'base64')).toString('utf8') : patch;
}

/**
 * The conversation up to the last thing that the policy said. All `token_ids` one after the other are the sequence up
 * to there; several messages without a sample between them have all their tokens in the first one, since a template
 * renders them together.
 */
export function messagesOf(sequence: Trajectory): Message[] {
  const { input_ids: prompt, output_ids: output, logprobs } = sequence;
  const samples = mended(sequence.turns);
  const messages: Message[] = [];
  let next = 0;
  let added: number[] = [...prompt];
  for (const { role, content } of sequence.messages) {
    const sample = role === 'assistant' ? samples[next] : undefined;
    // Worked examples of the prompt speak for the assistant, too: what the policy said comes after the whole prompt.
    if (sample && isSampled(sequence, messages.length, samples.length)) {
      const [start, end] = sample.sampled;
      messages.push({
        role,
        content,
        ...(sample.calls.length > 0 ? { tool_calls: sample.calls } : {}),
        token_ids: output.slice(start, end),
        input_ids: [...prompt, ...output.slice(0, start)],
        logprobs: logprobs.slice(start, end),
      });
      added = output.slice(...sample.observed);
      next++;
    } else {
      messages.push({ role, content, token_ids: added, input_ids: null, logprobs: null });
      added = [];
    }
  }
  const last = messages.findLastIndex(({ input_ids }) => input_ids !== null);
  return messages.slice(0, last + 1);
}

/** True from the first message of the assistant after which as many are left as there are samples. */
function isSampled({ messages }: Trajectory, index: number, samples: number): boolean {
  const left = messages.slice(index).filter(({ role }) => role === 'assistant').length;
  return left <= samples;
}

interface Sample {
  readonly sampled: [number, number];
  readonly observed: [number, number];
  readonly calls: { name: string; arguments: Record<string, unknown> }[];
}

/** Turns of which one message came: one that was broken off and went on under other weights is one with the next. */
function mended(turns: readonly Turn[]): Sample[] {
  const samples: Sample[] = [];
  let begun: number | undefined;
  for (const [index, { sampled, observed, tool_calls }] of turns.entries()) {
    const start = begun ?? sampled[0];
    const goesOn = observed[0] === observed[1] && index < turns.length - 1;
    begun = goesOn ? start : undefined;
    if (goesOn) continue;
    const calls = tool_calls.map(({ tool, arguments: given }) => ({ name: tool, arguments: given }));
    samples.push({ sampled: [start, sampled[1]], observed, calls });
  }
  return samples;
}
