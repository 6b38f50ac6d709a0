import { z } from 'zod';
import { CancelReason, RolloutId } from './request.ts';

/** Workflow type, and id of its one workflow, that ends many rollouts at once. */
export const CANCEL_SWEEPER = 'cancelSweeper';
/** Workflow type that keeps records of rollouts that were closed from outside; run by a schedule. */
export const CLOSED_SWEEP_WORKFLOW = 'closedSweep';
/** Workflow type that stands for one sandbox host while it is up; its id is `host:<name>`. */
export const HOST_WORKFLOW = 'sandboxHost';

/** Which rollouts; every given part must match, and at least one is given. */
export const Selection = z
  .strictObject({
    rolloutIds: z.array(RolloutId).min(1).max(20_000).optional(),
    batchId: z.string().min(1).max(200).optional(),
    groupId: z.string().min(1).max(200).optional(),
    /** Rollouts with a token sampled under an older policy version than this. */
    belowVersion: z.int().min(0).optional(),
  })
  .refine((selection) => Object.values(selection).some((part) => part !== undefined), {
    message: 'name rollouts, a batch, a group or a policy version',
  });
export type Selection = z.infer<typeof Selection>;

/** What a sweep is asked for. */
export interface SweepInput {
  readonly selection: Selection;
  readonly reason: CancelReason;
  /** Hosts that were up when it was asked for. */
  readonly hosts: readonly string[];
}

/** What a sweep has done. */
export const SweepReport = z.object({
  /** Rollouts whose agents were stopped on their hosts. */
  aborted: z.int(),
  /** Rollouts that were told by a signal: in a queue, paused, or being graded. */
  signalled: z.int(),
  /** Hosts that did not answer; what runs there ends by its signal. */
  silentHosts: z.array(z.string()).readonly(),
});
export type SweepReport = z.infer<typeof SweepReport>;

/** POST /v1/abort: stops every agent on this host that is selected. */
export const AbortMany = z.object({ selection: Selection, reason: CancelReason });
export type AbortMany = z.infer<typeof AbortMany>;
/**
 * Its answer: the rollouts that were stopped, and end by the word of the worker that held them; `unheld` are those
 * whose sandboxes are dead but whom nobody held (paused, or being prepared): a signal must tell them.
 */
export const AbortedMany = z.object({
  rolloutIds: z.array(z.string()),
  unheld: z.array(z.string()).default([]),
});
export type AbortedMany = z.infer<typeof AbortedMany>;

/** What the rest of a sweep is given: those of the selection that no host has stopped are told by signal. */
export interface SignalRestInput {
  readonly selection: Selection;
  readonly reason: CancelReason;
  readonly aborted: readonly string[];
  /** Stopped by a host without anybody who could say so: told whatever else is selected. */
  readonly unheld?: readonly string[];
}

/** Activities on `rollouts-records` that reach many rollouts through Temporal. */
export interface SweepActivities {
  signalRest(input: SignalRestInput): Promise<{ signalled: number }>;
  /** Keeps the record of each rollout that was closed from outside and has none. */
  recordClosed(): Promise<{ recorded: number }>;
}
