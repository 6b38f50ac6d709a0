import { z } from 'zod';
import { Sampling } from './request.ts';
import { Task } from './task.ts';

/** Version of the trajectory record's layout. */
export const TRAJECTORY_SCHEMA_VERSION = 1;

/** Token ids of one model's vocabulary. */
export const TokenIds = z.array(z.int().min(0));

/** One message of the conversation as text, for people; training uses the token ids. */
export const ChatMessage = z.object({
  role: z.enum(['system', 'user', 'assistant', 'tool']),
  content: z.string(),
});
export type ChatMessage = z.infer<typeof ChatMessage>;

/** What produced the tokens. Hashes are `sha256:` and 64 hex digits. */
export const ModelIdentity = z.object({
  /** The server's own name of the model. */
  name: z.string(),
  /** Of the model's description: name, vocabulary size, parameter count, file size. */
  model_hash: z.string(),
  /** Of the encodings of a fixed probe text. */
  tokenizer_hash: z.string(),
  template_hash: z.string(),
});
export type ModelIdentity = z.infer<typeof ModelIdentity>;

/** A reward with its parts; `total` is what the trainer uses. */
export const Reward = z.object({
  total: z.number(),
  parts: z.record(z.string(), z.number()),
});
export type Reward = z.infer<typeof Reward>;

/**
 * Why a run ended before the agent said it was done: its turns were used up, a token limit of the request cut
 * it, the model's context was full, or its time was over.
 */
export const Truncation = z.enum(['turns', 'tokens', 'context', 'deadline']);
export type Truncation = z.infer<typeof Truncation>;

/** One turn: spans are half-open ranges [start, end) of `output_ids`. */
export const Turn = z.object({
  turn: z.int().min(0),
  sampled: z.tuple([z.int(), z.int()]),
  observed: z.tuple([z.int(), z.int()]),
  finish: z.enum(['stop', 'length', 'abort']),
  /** The oldest version that sampled any of the turn's tokens. */
  policy_version: z.int(),
  server: z.string(),
  started_at: z.string(),
  generate_ms: z.number(),
  tool_calls: z.array(
    z.object({
      call_id: z.string(),
      tool: z.string(),
      arguments: z.record(z.string(), z.unknown()),
      call_status: z.string(),
      result_status: z.string().nullable(),
      exit_code: z.int().nullable(),
      ms: z.number().nullable(),
    }),
  ),
});
export type Turn = z.infer<typeof Turn>;

/**
 * A trajectory: token ids in, token ids out. One JSON line per sequence. `logprobs`, `loss_mask` and
 * `policy_versions` align with `output_ids`; tokens of tools and of the template have mask 0, logprob 0 and
 * version −1. The prompt of turn n is `input_ids` and `output_ids` up to its sampled span, exactly.
 */
export const Trajectory = z
  .object({
    schema_version: z.literal(TRAJECTORY_SCHEMA_VERSION),
    rollout_id: z.string(),
    workflow_run_id: z.string(),
    attempt: z.int().min(1),
    sequence_index: z.int().min(0),
    sequence_count: z.int().min(1),
    task: Task,
    sample: z.int().min(0),
    group_id: z.string().nullable(),
    batch_id: z.string().nullable(),
    input_ids: TokenIds,
    output_ids: TokenIds,
    logprobs: z.array(z.number()),
    loss_mask: z.array(z.union([z.literal(0), z.literal(1)])),
    policy_versions: z.array(z.int().min(-1)),
    /** Null while ungraded: cancelled or failed. */
    reward: Reward.nullable(),
    finish_reason: z.enum(['finished', 'turns', 'tokens', 'context', 'deadline', 'aborted']),
    truncated: Truncation.nullable(),
    turns: z.array(Turn),
    messages: z.array(ChatMessage),
    sampling: Sampling,
    model: ModelIdentity,
    metadata: z.record(z.string(), z.unknown()),
    /** `sha256:` and the digest of this record's JSON without this field. */
    checksum: z.string(),
  })
  .superRefine((record, context) => {
    for (const field of ['logprobs', 'loss_mask', 'policy_versions'] as const) {
      if (record[field].length !== record.output_ids.length) {
        context.addIssue({
          code: 'custom',
          path: [field],
          message: `has ${record[field].length} entries for ${record.output_ids.length} output_ids`,
        });
      }
    }
  });
export type Trajectory = z.infer<typeof Trajectory>;

/** Where a stored trajectory lies, small enough for a workflow payload. */
export const TrajectoryRef = z.object({
  /** `file:` URI of a JSONL file with one line per sequence. */
  uri: z.string(),
  sha256: z.string(),
  bytes: z.int(),
  turns: z.int(),
  promptTokens: z.int(),
  /** All of output_ids. */
  outputTokens: z.int(),
  /** Those of them with loss mask 1. */
  sampledTokens: z.int(),
});
export type TrajectoryRef = z.infer<typeof TrajectoryRef>;
