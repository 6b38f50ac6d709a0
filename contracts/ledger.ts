import { z } from 'zod';
import { PolicySpan } from './llm.ts';
import { ToolCall, ToolResult } from './tools.ts';
import { ChatMessage, ModelIdentity, TokenIds } from './trajectory.ts';

/**
 * Which of the rollout's token sequences a record is of: 0 if absent. Programs with a loop of their own may begin
 * several, whose records stand in one ledger in the order in which they came.
 */
const sequence = z.int().min(1).optional();

/** First record of a sequence: the prompt as sent, and what produced it. */
export const LedgerBegin = z.object({
  kind: z.literal('begin'),
  sequence,
  promptIds: TokenIds,
  messages: z.array(ChatMessage),
  tools: z.array(z.string()),
  model: ModelIdentity,
});

/** Written before the turn's tools run: what the model sampled, and the calls read from it. */
export const LedgerSampled = z.object({
  kind: z.literal('sampled'),
  sequence,
  turn: z.int().min(0),
  /** Tokens of the prompt that was sent: all of the sequence so far. A resumed run proves that it agrees. */
  promptLength: z.int().min(1),
  ids: TokenIds,
  logprobs: z.array(z.number()),
  /** The oldest version that sampled any of the tokens. */
  policyVersion: z.int().min(0),
  /** Which tokens each version sampled, where it was not one alone: weights were swapped under the request. */
  versions: z.array(PolicySpan).optional(),
  finish: z.enum(['stop', 'length', 'abort']),
  /** Of the whole turn so far, over its requests if one was broken off. */
  text: z.string(),
  calls: z.array(ToolCall),
  server: z.string(),
  startedAt: z.string(),
  ms: z.number().min(0),
  /** Of a program with a loop of its own: the call that asked for it. */
  asked: z
    .object({
      /** As the sandbox host numbers calls. */
      id: z.string(),
      /** Hash of the conversation that it gave. */
      conversation: z.string(),
    })
    .optional(),
});

/**
 * Written after the turn's tools ended: their results and the tokens these add to the prompt. Programs with a loop of
 * their own run their tools themselves: then there are no results, and it is written with the next turn.
 */
export const LedgerObserved = z.object({
  kind: z.literal('observed'),
  sequence,
  turn: z.int().min(0),
  results: z.array(ToolResult),
  messages: z.array(ChatMessage),
  deltaIds: TokenIds,
});

/** Last record: how the agent ended and what it leaves to the grader. */
export const LedgerEnd = z.object({
  kind: z.literal('end'),
  ended: z.enum(['finished', 'turns', 'tokens', 'context', 'deadline', 'aborted']),
  /** What the handler's run leaves for its evaluate: an answer, a diff, paths of files. */
  outcome: z.record(z.string(), z.unknown()),
});

/** One record of a rollout's ledger. */
export const LedgerRecord = z.discriminatedUnion('kind', [
  LedgerBegin,
  LedgerSampled,
  LedgerObserved,
  LedgerEnd,
]);
export type LedgerRecord = z.infer<typeof LedgerRecord>;
export type LedgerBegin = z.infer<typeof LedgerBegin>;
export type LedgerSampled = z.infer<typeof LedgerSampled>;
export type LedgerObserved = z.infer<typeof LedgerObserved>;
export type LedgerEnd = z.infer<typeof LedgerEnd>;

/**
 * One line of a ledger file. `seq` counts from 0 without gaps; `hash` is the first 16 hex digits of
 * sha256(hash of the line before + JSON of the other fields), so that a torn or altered line shows.
 */
export interface LedgerLine {
  readonly seq: number;
  readonly fence: number;
  readonly at: string;
  readonly record: LedgerRecord;
  readonly hash: string;
}
