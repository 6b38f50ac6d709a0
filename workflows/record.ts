import type { Stage } from '../contracts/failures.ts';
import { recordIdentity, recordTimings } from '../contracts/record.ts';
import type { CancelReason, RolloutRequest } from '../contracts/request.ts';
import type { CancelReceipt, RolloutResult, StageFailure } from '../contracts/result.ts';
import type { ConcludeInput, RunReport } from '../contracts/stages.ts';
import type { HeldSandbox } from './held-sandbox.ts';
import type { RunEntries } from './run-entries.ts';

/** What a rollout has come to know, as far as its record needs it. */
export interface Known {
  readonly request: RolloutRequest;
  readonly startedAt: string;
  readonly attempt: number;
  readonly retried: StageFailure[];
  readonly sandbox: Pick<HeldSandbox, 'placement' | 'released' | 'shelf'> | undefined;
  readonly report: RunReport | undefined;
  readonly cancelled: { reason: CancelReason; stage: Stage; at: number } | undefined;
  readonly run: RunEntries | undefined;
  readonly pausedMs: number;
}

/** The record of a rollout that ended without a grade: failed, if there is a failure, else cancelled. Pure. */
export function ungradedRecord(
  known: Known,
  workflowRunId: string,
  failure: StageFailure | null,
  now: number,
): ConcludeInput['result'] {
  const { request, startedAt, attempt, retried } = known;
  const placement = known.sandbox?.placement;
  const endedAt = new Date(now).toISOString();
  return {
    ...recordIdentity(request, workflowRunId),
    outcome: failure ? 'failed' : 'cancelled',
    reward: null,
    truncation: null,
    cancel: receiptOf(known, now),
    failure,
    retried,
    attempt,
    host: placement?.host ?? null,
    backend: placement?.backend ?? null,
    startedAt,
    endedAt,
    timings: recordTimings(startedAt, endedAt, {
      initMs: placement?.ms ?? 0,
      runMs: known.run?.timer.activeMs ?? 0,
      pausedMs: known.pausedMs,
      evaluateMs: 0,
    }),
  };
}

function receiptOf(known: Known, now: number): CancelReceipt | null {
  const { cancelled, sandbox, report, run } = known;
  if (!cancelled) return null;
  const released = sandbox?.released;
  const took = report?.released ?? released?.released;
  return {
    reason: cancelled.reason,
    stage: cancelled.stage,
    turn: report?.cancel?.turn ?? (cancelled.stage === 'paused' && run ? run.position.turn : null),
    llmAborted: report?.cancel?.llmAborted ?? false,
    processesKilled: report?.processesKilled ?? released?.processesKilled ?? 0,
    sandboxReleased:
      !sandbox || report !== undefined || released !== undefined || sandbox.shelf !== undefined,
    ms: now - cancelled.at,
    took: { llmMs: report?.cancel?.llmMs ?? null, killMs: took?.killMs ?? null, releaseMs: took?.ms ?? null },
  };
}

/** The end of a rollout in Markdown, for the Temporal UI. */
export function summaryOf(result: RolloutResult): string {
  const lines = [`**${result.outcome}**`];
  if (result.reward) lines.push(`reward ${result.reward.total}`);
  if (result.truncation) lines.push(`truncated: ${result.truncation}`);
  if (result.cancel) lines.push(`cancelled: ${result.cancel.reason} in ${result.cancel.stage}`);
  if (result.failure) lines.push(`${result.failure.type}: ${result.failure.message}`);
  if (result.trajectory) {
    const { turns, promptTokens, sampledTokens, uri } = result.trajectory;
    lines.push(`${turns} turns, ${promptTokens} prompt and ${sampledTokens} sampled tokens`, `\`${uri}\``);
  }
  return lines.join('  \n');
}
