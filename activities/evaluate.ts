import type { Context } from '@temporalio/activity';
import { RolloutError } from '../contracts/failures.ts';
import { recordIdentity, recordTimings } from '../contracts/record.ts';
import type { RolloutResult } from '../contracts/result.ts';
import type { EvaluateActivities, EvaluateInput } from '../contracts/stages.ts';
import { conclude } from './conclude.ts';
import { atEdge } from './errors.ts';
import { grade } from './grading/grade.ts';
import { judgeOn, type LabelledServers } from './grading/judge-model.ts';
import { shapedByFormat } from './grading/shaping.ts';
import type { HandlerRegistry } from './handlers/registry.ts';
import { withHeartbeat } from './heartbeat.ts';
import type { SandboxClient } from './sandbox/client.ts';
import { assembleTrajectories, messagesOf, truncationOf } from './trajectory/assemble.ts';
import type { TrajectoryStore } from './trajectory/store.ts';

export interface EvaluateDependencies {
  readonly handlers: HandlerRegistry;
  readonly store: TrajectoryStore;
  readonly sandboxes: SandboxClient;
  /** Servers of judge models, where this worker knows any. */
  readonly servers?: LabelledServers | undefined;
}

/** The evaluate stage: works from the store alone, so it runs on any machine. */
export function makeEvaluateActivities(dependencies: EvaluateDependencies): EvaluateActivities {
  return {
    evaluate: (input) =>
      atEdge('GraderFailed', () =>
        withHeartbeat(
          () => null,
          (context) => evaluate(dependencies, input, context),
        ),
      ),
    conclude: (input) => atEdge('StoreFailed', () => conclude(dependencies.store, input)),
  };
}

async function evaluate(
  { handlers, store, sandboxes, servers }: EvaluateDependencies,
  input: EvaluateInput,
  context: Context,
): Promise<RolloutResult> {
  const started = Date.now();
  const { request, attempt, placement, report, record } = input;
  const workflowRunId = context.info.workflowExecution?.runId as string;
  // After a reset the ledger is that of the run which was reset.
  const { ledgerRunId = workflowRunId } = report;
  const standing = await store.getTerminal(request.rolloutId);
  if (standing) return standing;

  const key = { rolloutId: request.rolloutId, workflowRunId: ledgerRunId, attempt };
  const records = await store.getLedger(key);
  if (!records) throw new RolloutError('StoreFailed', `the store holds no ledger of ${request.rolloutId}`);
  const end = records.at(-1);
  if (end?.kind !== 'end') throw new RolloutError('StoreCorrupt', 'the stored ledger has no end');

  const { handler, data } = handlers.open(request.task);
  const graded = await grade({
    ...{ handler, data, sandboxes, python: handlers.python },
    outcome: end.outcome,
    messages: messagesOf(records),
    judge: servers && judgeOn(servers, request.rolloutId),
    owner: { rolloutId: request.rolloutId, workflowRunId, attempt },
    seconds: request.deadlines.evaluateSeconds,
    signal: context.cancellationSignal,
  });
  const reward = shapedByFormat(graded, records, request.formatPenalty);
  const trajectory = await store.putTrajectory(
    key,
    assembleTrajectories(records, {
      request,
      workflowRunId,
      attempt,
      reward,
      metadata: { host: placement.host, backend: placement.backend, outcome: end.outcome },
    }),
  );
  const truncation = truncationOf(end.ended);
  const endedAt = new Date();
  const result: RolloutResult = {
    ...recordIdentity(request, workflowRunId),
    outcome: truncation ? 'truncated' : 'completed',
    reward,
    truncation,
    cancel: null,
    failure: null,
    retried: record.retried,
    attempt,
    host: placement.host,
    backend: placement.backend,
    policyVersions: report.policyVersions,
    trajectory,
    startedAt: record.startedAt,
    endedAt: endedAt.toISOString(),
    timings: recordTimings(record.startedAt, endedAt.toISOString(), {
      initMs: record.initMs,
      runMs: record.runMs,
      ...(record.pausedMs === undefined ? {} : { pausedMs: record.pausedMs }),
      evaluateMs: endedAt.getTime() - started,
    }),
  };
  return store.putTerminal(result);
}
