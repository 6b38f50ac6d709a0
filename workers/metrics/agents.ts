import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { SandboxClient } from '../../activities/sandbox/client.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import type { RunReport } from '../../contracts/stages.ts';
import type { ToolResult } from '../../contracts/tools.ts';
import { currentWork } from '../work-context.ts';
import type { Metrics } from './metrics.ts';
import { wrapped } from './wrapped.ts';

/**
 * The sandboxes as the run stage uses them. What an agent does is what it has recorded: it is counted when the ledger
 * has it, so a turn that is sampled anew or a record that is refused counts once and not at all.
 */
export function countAgents(sandboxes: SandboxClient, metrics: Metrics): SandboxClient {
  const count = recordCounter(metrics);
  return wrapped(sandboxes, {
    appendLedger: async (sandboxId, request, signal) => {
      await sandboxes.appendLedger(sandboxId, request, signal);
      count(request.record as LedgerRecord, currentWork()?.kind ?? 'other');
    },
  });
}

/** Counts how entries into the run stage end. */
export function countRuns(metrics: Metrics): ActivityInterceptorsFactory {
  const runs = metrics.counter('rollouts_runs_total');
  return ({ info }) =>
    info.activityType !== 'run'
      ? {}
      : {
          inbound: {
            execute: async (input, next) => {
              const report = (await next(input)) as RunReport;
              runs.inc({ kind: currentWork()?.kind ?? 'other', ended: report.ended });
              return report;
            },
          },
        };
}

function recordCounter(metrics: Metrics): (record: LedgerRecord, kind: string) => void {
  const turns = metrics.counter('rollouts_turns_total');
  const tokens = metrics.counter('rollouts_tokens_total');
  const malformed = metrics.counter('rollouts_malformed_calls_total');
  const count = toolCounter(metrics);
  return (record, kind) => {
    if (record.kind === 'begin') tokens.inc({ kind, source: 'prompt' }, record.promptIds.length);
    if (record.kind === 'sampled') {
      tokens.inc({ kind, source: 'sampled' }, record.ids.length);
      // One that was broken off goes on as another record.
      if (record.finish !== 'abort') turns.inc({ kind });
      for (const { status } of record.calls) if (status !== 'ok') malformed.inc({ problem: status });
    }
    if (record.kind === 'observed') {
      tokens.inc({ kind, source: 'observed' }, record.deltaIds.length);
      for (const result of record.results) count(result);
    }
  };
}

function toolCounter(metrics: Metrics): (result: ToolResult) => void {
  const calls = metrics.counter('rollouts_tool_calls_total');
  const seconds = metrics.histogram('rollouts_tool_seconds');
  /** Names of tools that ran. A model may call anything. */
  const real = new Set<string>();
  return ({ tool: name, status, exitCode, ms }) => {
    const ran = status !== 'refused';
    if (ran) real.add(name);
    const tool = real.has(name) ? name : 'other';
    calls.inc({ tool, status, exit: exitCode === null ? 'none' : exitCode === 0 ? 'zero' : 'nonzero' });
    if (ran) seconds.observe({ tool }, ms / 1000);
  };
}
