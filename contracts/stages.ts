import type { HandlerDeadlines, SettledRequest } from './deadlines.ts';
import type { LedgerEnd } from './ledger.ts';
import type { LookInput } from './look.ts';
import type { CancelReason, RolloutRequest } from './request.ts';
import type { RolloutResult } from './result.ts';
import type { AbortReason, SandboxKind } from './sandbox.ts';
import type { AbortedMany, AbortMany } from './sweep.ts';

/** How an agent ends: by itself, or at a limit. */
export type AgentEnd = LedgerEnd['ended'];

/** One attempt of a rollout, as the stages name it. */
export interface AttemptInput {
  readonly request: RolloutRequest;
  readonly attempt: number;
}

/** What is kept of a sandbox that was given up in a long pause or with its host: its workspace, beside the ledger. */
export interface Shelf {
  /** A path in the store's folder; no file is there for a sandbox in which nothing runs. */
  readonly file: string;
  readonly sha256: string;
  readonly bytes: number;
  /** Oldest policy version that it sampled under, if any: no host knows it as long as the workspace is kept. */
  readonly oldestVersion?: number;
}

/** What init is given. */
export interface InitInput extends AttemptInput {
  /** Present: the attempt goes on from what was kept, and its handler's init has been. */
  readonly shelf?: Shelf;
}

/** What init returns: where the sandbox is. */
export interface Placement {
  readonly host: string;
  readonly sandboxId: string;
  readonly workspace: string;
  readonly backend: SandboxKind;
  readonly runQueue: string;
  readonly controlQueue: string;
  /** What the handler asks for; absent of one that asks for nothing. */
  readonly deadlines?: HandlerDeadlines;
  readonly ms: number;
}

/** Seconds that one entry into the run stage may wait for an LLM server; then another entry waits on. */
export const MOST_WAITING_SECONDS = 600;

/** What run is given. */
export interface RunInput extends AttemptInput {
  readonly request: SettledRequest;
  readonly placement: Placement;
  /** Counts the attempt's entries into the run stage from 1: a pause or a lost worker makes another. */
  readonly entry?: number;
  /** Milliseconds of active time that are left; the run deadline if absent. */
  readonly remainingMs?: number;
}

/** What run returns: how the agent ended, with counts; the tokens themselves are in the store. */
export interface RunReport {
  /** `paused` and `shutdown` (of the worker): the sandbox stays, and another entry goes on in it. */
  readonly ended: AgentEnd | 'paused' | 'shutdown';
  /** The workflow run under which the ledger is kept; absent in reports from before resets were handled. */
  readonly ledgerRunId?: string;
  /** Present when aborted: why, and what the abort reached. */
  readonly cancel: {
    readonly reason: CancelReason;
    readonly llmAborted: boolean;
    readonly turn: number;
    /** From the abort's arrival at the worker to the release of the sandbox. */
    readonly ms?: number;
    /** From the abort's arrival at the worker to the close of its LLM request. */
    readonly llmMs?: number;
  } | null;
  readonly turns: number;
  readonly tokens: number;
  readonly policyVersions: [number, number] | null;
  /** The sandbox is released and its processes are dead when run returns, unless another entry goes on in it. */
  readonly processesKilled: number;
  /** What the release of the sandbox took, if it was released. */
  readonly released?: Released;
  /** Milliseconds that this entry has worked; waiting for an LLM server does not count. */
  readonly ms: number;
}

/** Last heartbeat of a run: where it was, and for how long it had worked. */
export interface RunPosition {
  readonly turn: number;
  readonly tokens: number;
  readonly ms: number;
}

/** What evaluate is given. */
export interface EvaluateInput extends AttemptInput {
  readonly request: SettledRequest;
  readonly placement: Placement;
  readonly report: RunReport;
  /** Everything of the terminal record that the workflow knows. */
  readonly record: RecordSoFar;
}

/** What the workflow knows of the terminal record before the last activity adds the rest. */
export type RecordSoFar = Pick<RolloutResult, 'startedAt' | 'retried'> & {
  readonly initMs: number;
  readonly runMs: number;
  readonly pausedMs?: number;
};

/** What release is given: a sandbox to end, and what to rescue from it. */
export interface ReleaseInput extends AttemptInput {
  readonly placement: Placement;
  readonly reason: CancelReason | 'failed';
}

/** What shelve is given: the sandbox of a paused agent, and the last entry into its run stage. */
export interface ShelveInput extends AttemptInput {
  readonly placement: Placement;
  readonly entry: number;
}

/** Milliseconds that the end of a sandbox took: the death of its processes, and the release. */
export interface Released {
  readonly killMs: number | null;
  readonly ms: number;
}

/** What release returns. */
export interface ReleaseReport {
  readonly processesKilled: number;
  readonly released?: Released;
  /** Why the ledger could not be copied to the store; it then stays on the host. */
  readonly problem: string | null;
}

/** What conclude is given: all of a terminal record but what the store knows. */
export interface ConcludeInput extends AttemptInput {
  readonly result: Omit<RolloutResult, 'trajectory' | 'policyVersions'>;
}

/** Activities on `rollouts-init`. */
export interface InitActivities {
  init(input: InitInput): Promise<Placement>;
}

/** Activities on `rollouts-run-<host>`. */
export interface RunActivities {
  run(input: RunInput): Promise<RunReport>;
}

/** Activities on `rollouts-eval`. */
export interface EvaluateActivities {
  /** Grades, writes the trajectory and the terminal record, and returns the record that stands. */
  evaluate(input: EvaluateInput): Promise<RolloutResult>;
  /**
   * Keeps the terminal record of a rollout that was not graded, with the trajectory of what was recorded, and
   * returns the record that stands.
   */
  conclude(input: ConcludeInput): Promise<RolloutResult>;
}

/** Activities on `rollouts-control-<host>` that concern the whole host. */
export interface HostActivities {
  /** Stops every selected agent at once. */
  abortMany(input: AbortMany): Promise<AbortedMany>;
  /** Copies what an attempt has recorded here so far to the store, for whoever follows it; of one that has ended nothing. */
  copySoFar(input: Omit<LookInput, 'host'>): Promise<void>;
  /** Lasts for as long as the host is up. */
  presence(): Promise<void>;
}

/** Activities on `rollouts-control-<host>` that concern one sandbox. */
export interface ControlActivities {
  /** Stops the agent in a sandbox at once: its LLM request, its commands. */
  abort(input: { sandboxId: string; reason: AbortReason }): Promise<void>;
  /** Makes this entry into the run stage, and every earlier one, end at the next place where it can go on. */
  pause(input: { sandboxId: string; entry: number }): Promise<void>;
  /**
   * Kills what runs in a paused agent's sandbox, keeps its workspace and its ledger in the store and ends it; null,
   * and it stays, where the workspace is too large to be kept. Idempotent.
   */
  shelve(input: ShelveInput): Promise<Shelf | null>;
  /** Copies the ledger to the store, then ends the sandbox. Idempotent. */
  release(input: ReleaseInput): Promise<ReleaseReport>;
}
