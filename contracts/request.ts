import { z } from 'zod';
import { Task } from './task.ts';

/** Workflow ids appear in URLs, file names and shell commands: letters, digits and `._:-` only. */
export const RolloutId = z
  .string()
  .max(200)
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._:-]*$/,
    'letters, digits and . _ : - only, beginning with a letter or digit',
  );

/** How tokens are sampled. Sent to the LLM server as they are and recorded with the trajectory. */
export const Sampling = z.object({
  temperature: z.number().min(0).max(10).default(1),
  /** Nucleus sampling; 1 leaves the distribution whole. */
  topP: z.number().gt(0).max(1).default(1),
  /** Upper bound on the tokens of one turn. */
  maxTokensPerTurn: z.int().min(1).max(131_072).default(256),
  /** Seed of turn 0; turn n samples with seed + n. Absent: the server draws one. */
  seed: z.int().min(0).max(0x7fff_ffff).optional(),
});
export type Sampling = z.infer<typeof Sampling>;

/** Bounds on the agent. Reaching one ends the run as truncated; what exists is graded. */
export const Limits = z.object({
  maxTurns: z.int().min(1).max(10_000).default(8),
  /** Upper bound on all tokens of the trajectory, prompt included. Absent: the model's context. */
  maxTotalTokens: z.int().min(2).optional(),
  /** Seconds that one tool call may take. */
  toolTimeoutSeconds: z.number().gt(0).max(86_400).default(30),
});
export type Limits = z.infer<typeof Limits>;

/** Finite by default, in seconds. `run` counts from the moment a worker begins. */
export const Deadlines = z.object({
  initSeconds: z.number().gt(0).default(300),
  runSeconds: z.number().gt(0).default(600),
  evaluateSeconds: z.number().gt(0).default(60),
  /** How long a stage may wait in its queue before the rollout gives up on it. */
  queueSeconds: z.number().gt(0).default(86_400),
});
export type Deadlines = z.infer<typeof Deadlines>;

/** How often infrastructure may fail before the rollout does. */
export const Attempts = z.object({
  /** Times the rollout may begin from init. */
  rollout: z.int().min(1).max(100).default(3),
  /** Times each stage may be scheduled within one of those. */
  stage: z.int().min(1).max(100).default(5),
});
export type Attempts = z.infer<typeof Attempts>;

/** Everything a rollout workflow is started with; complete, so that a history explains itself. */
export const RolloutRequest = z.object({
  rolloutId: RolloutId,
  task: Task,
  /** Which sample of the task this is, from 0. */
  sample: z.int().min(0).default(0),
  groupId: z.string().min(1).max(200).optional(),
  batchId: z.string().min(1).max(200).optional(),
  sampling: Sampling.prefault({}),
  limits: Limits.prefault({}),
  deadlines: Deadlines.prefault({}),
  attempts: Attempts.prefault({}),
  /** Seconds without a heartbeat after which a worker counts as lost. */
  heartbeatTimeoutSeconds: z.number().min(1).max(3600).default(30),
  /** Seconds that the run stage may wait on its host's queue before the host counts as lost. */
  hostLostSeconds: z.number().min(1).max(86_400).default(30),
});
export type RolloutRequest = z.infer<typeof RolloutRequest>;
/** What a caller has to give: all that has a default may be left out. */
export type RolloutRequestInput = z.input<typeof RolloutRequest>;

/** Why a rollout was cancelled. */
export const CancelReason = z.enum(['user', 'stale', 'superseded', 'batchComplete', 'deadline', 'shutdown']);
export type CancelReason = z.infer<typeof CancelReason>;
