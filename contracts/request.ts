import { z } from 'zod';
import { Task } from './task.ts';
import { Tenant } from './tenant.ts';

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
  temperature: z.number().min(0).max(10).default(1).describe('Sampling temperature; 0 takes the likeliest.'),
  topP: z.number().gt(0).max(1).default(1).describe('Nucleus sampling; 1 leaves the distribution whole.'),
  maxTokensPerTurn: z
    .int()
    .min(1)
    .max(131_072)
    .default(256)
    .describe('Upper bound on the tokens of one turn.'),
  seed: z
    .int()
    .min(0)
    .max(0x7fff_ffff)
    .optional()
    .describe('Seed of turn 0; turn n samples with seed + n. Not set: the server draws one.'),
});
export type Sampling = z.infer<typeof Sampling>;

/** Bounds on the agent. Reaching one ends the run as truncated; what exists is graded. */
export const Limits = z.object({
  maxTurns: z.int().min(1).max(10_000).default(8).describe('Turns that an agent may take.'),
  maxTotalTokens: z
    .int()
    .min(2)
    .optional()
    .describe(
      'Upper bound on all tokens of the trajectory, prompt included; the model’s context if not set.',
    ),
  toolTimeoutSeconds: z
    .number()
    .gt(0)
    .max(86_400)
    .default(30)
    .describe('Seconds that one tool call may take.'),
});
export type Limits = z.infer<typeof Limits>;

/** 23 days: a process's timers take no more than 2^31 ms. */
const MOST_SECONDS = 2_000_000;
/** What a workflow's timers count in. A smaller number is written with an exponent, which they cannot read. */
const LEAST_SECONDS = 0.001;
const DeadlineSeconds = z.number().min(LEAST_SECONDS).max(MOST_SECONDS);

/**
 * Finite by default, in seconds. `run` counts active time: no queue, no pause, no lost worker. What is absent is settled
 * with the handler's word for it (contracts/deadlines.ts).
 */
export const Deadlines = z.object({
  initSeconds: DeadlineSeconds.default(300).describe('Seconds that init may take.'),
  runSeconds: DeadlineSeconds.optional().describe(
    'Seconds that the agent may work, pauses not counted; then it is stopped, and what exists is graded. Not set: ' +
      'what the handler asks for, else 600.',
  ),
  evaluateSeconds: DeadlineSeconds.optional().describe(
    'Seconds that grading may take. Not set: what the handler asks for, else 60.',
  ),
  queueSeconds: DeadlineSeconds.default(86_400).describe(
    'Seconds that init and evaluate may wait in their queue before the rollout fails.',
  ),
  totalSeconds: DeadlineSeconds.default(604_800).describe(
    'Seconds from the start, pauses and queues included, after which the rollout is cancelled.',
  ),
});
export type Deadlines = z.infer<typeof Deadlines>;

/** How often infrastructure may fail before the rollout does. */
export const Attempts = z.object({
  rollout: z.int().min(1).max(100).default(10).describe('Times that a rollout may begin from init.'),
  stage: z
    .int()
    .min(1)
    .max(100)
    .default(5)
    .describe('Times that each stage may be tried within one of those.'),
});
export type Attempts = z.infer<typeof Attempts>;

export const PausedSandboxSeconds = z
  .number()
  .min(1)
  .max(MOST_SECONDS)
  .optional()
  .describe(
    'Seconds of a pause after which the sandbox is given back: its workspace is kept in the store and put into ' +
      'another at resume, on any host; processes, variables of shells and files elsewhere are gone. Not set: it stays.',
  );

/** Shaping is explicit: nothing is taken unless this is given. */
export const FormatPenalty = z
  .number()
  .gt(0)
  .max(1000)
  .optional()
  .describe(
    'Taken from the reward, times the share of tool calls that could not be read; `parts` has what the grader gave. ' +
      'Not set: nothing.',
  );

/** Labels of LLM servers appear in commands and tables: letters, digits and `._-`. */
export const ServerLabel = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$/, 'letters, digits and . _ - only');

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
  heartbeatTimeoutSeconds: z.number().min(1).max(3600).default(15),
  /**
   * Seconds without a sign of life (a heartbeat, or a task taken from its queue) after which a host counts as
   * lost.
   */
  hostLostSeconds: z.number().min(1).max(86_400).default(30),
  /** Whose it is, where several share the service. */
  tenant: Tenant.optional(),
  /** Workflow that hears of its end by a signal: the group it belongs to. */
  reportTo: z.string().min(1).max(200).optional(),
  /** Hash of what the caller asked for, by which the same request is known again. */
  digest: z.string().max(200).optional(),
  /** Seconds of a pause after which the sandbox is given back; if absent it stays. */
  pausedSandboxSeconds: PausedSandboxSeconds,
  formatPenalty: FormatPenalty,
  /** Label of the LLM servers that sample it; `policy` if absent. */
  serverLabel: ServerLabel.optional(),
});
export type RolloutRequest = z.infer<typeof RolloutRequest>;
/** What a caller has to give: all that has a default may be left out. */
export type RolloutRequestInput = z.input<typeof RolloutRequest>;

/** Why a rollout was cancelled. */
export const CancelReason = z.enum(['user', 'stale', 'superseded', 'batchComplete', 'deadline', 'shutdown']);
export type CancelReason = z.infer<typeof CancelReason>;
