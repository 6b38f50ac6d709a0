import { z } from 'zod';
import type { FailureType } from './failures.ts';
import { CancelReason } from './request.ts';
import { Reward, TrajectoryRef, Truncation } from './trajectory.ts';

const StageName = z.enum(['queued', 'init', 'run', 'paused', 'evaluate']);
const FailureName = z.string() as unknown as z.ZodType<FailureType>;

/** A failure as it is recorded. */
export const StageFailure = z.object({
  type: FailureName,
  stage: StageName,
  cause: z.enum(['request', 'infrastructure']),
  message: z.string(),
  attempt: z.int().min(0),
});
export type StageFailure = z.infer<typeof StageFailure>;

/** What a cancellation reached. */
export const CancelReceipt = z.object({
  reason: CancelReason,
  /** Stage and turn when the cancellation arrived; turn is null outside run. */
  stage: StageName,
  turn: z.int().nullable(),
  /** True if an LLM request was in flight and its connection was closed. */
  llmAborted: z.boolean(),
  /** Processes of the sandbox that were alive and are dead. */
  processesKilled: z.int(),
  sandboxReleased: z.boolean(),
  /** From the cancellation's arrival in the workflow to the sandbox's release, in milliseconds. */
  ms: z.number(),
  /**
   * Milliseconds that each of it took, from when its worker or host was told: the close of the LLM request, the death of
   * the processes, the release; null for what was not there. Absent in records of earlier versions.
   */
  took: z
    .object({ llmMs: z.number().nullable(), killMs: z.number().nullable(), releaseMs: z.number().nullable() })
    .optional(),
});
export type CancelReceipt = z.infer<typeof CancelReceipt>;

/** The terminal record: exactly one per accepted rollout. */
export const RolloutResult = z.object({
  schemaVersion: z.literal(1),
  rolloutId: z.string(),
  workflowRunId: z.string(),
  handler: z.string(),
  taskId: z.string(),
  sample: z.int(),
  groupId: z.string().nullable(),
  batchId: z.string().nullable(),
  /** Of the request, where the caller gave one. */
  requestDigest: z.string().optional(),
  outcome: z.enum(['completed', 'truncated', 'cancelled', 'failed']),
  /** Present exactly for completed and truncated. */
  reward: Reward.nullable(),
  truncation: Truncation.nullable(),
  cancel: CancelReceipt.nullable(),
  failure: StageFailure.nullable(),
  /** Failures that were retried on the way here. */
  retried: z.array(StageFailure),
  attempt: z.int().min(0),
  host: z.string().nullable(),
  backend: z.string().nullable(),
  /** Lowest and highest policy version among the sampled tokens. */
  policyVersions: z.tuple([z.int(), z.int()]).nullable(),
  trajectory: TrajectoryRef.nullable(),
  /** Seconds since the epoch would lose precision in JSON tools: ISO 8601. */
  startedAt: z.string(),
  endedAt: z.string(),
  /** Milliseconds per stage as the worker measured them, run without pauses; queueMs is what remains. */
  timings: z.object({
    initMs: z.number(),
    runMs: z.number(),
    evaluateMs: z.number(),
    /** Asked to pause and not yet to resume; absent in records from before there were pauses. */
    pausedMs: z.number().optional(),
    queueMs: z.number(),
    totalMs: z.number(),
  }),
});
export type RolloutResult = z.infer<typeof RolloutResult>;
export type Outcome = RolloutResult['outcome'];
