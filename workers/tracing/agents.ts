import { type Attributes, context, type Span, trace } from '@opentelemetry/api';
import type { SandboxClient } from '../../activities/sandbox/client.ts';
import type { LedgerObserved, LedgerRecord, LedgerSampled } from '../../contracts/ledger.ts';
import { wrapped } from '../metrics/wrapped.ts';
import { currentWork, type Work } from '../work-context.ts';

/** A turn whose tools run: its record, and when that was written. */
interface OpenTurn {
  readonly sampled: LedgerSampled;
  readonly recordedAt: number;
}

/**
 * The sandboxes of the run stage, whose ledgers tell what the agents do: each turn becomes a span of the stage, with
 * the request for its tokens and its tool calls below it. Made when the turn has ended, from the times in its records,
 * and without a word of what was said.
 */
export function traceAgents(sandboxes: SandboxClient): SandboxClient {
  /** By the entry into the run stage: one that ends between a turn and its tools leaves nothing behind. */
  const open = new WeakMap<Work, OpenTurn>();
  return wrapped(sandboxes, {
    appendLedger: async (sandboxId, request, signal) => {
      await sandboxes.appendLedger(sandboxId, request, signal);
      const work = currentWork();
      if (!work) return;
      const record = request.record as LedgerRecord;
      const before = open.get(work);
      if (before && (record.kind !== 'observed' || record.turn !== before.sampled.turn))
        spansOf(work, before);
      open.delete(work);
      if (record.kind === 'observed') spansOf(work, before, record);
      if (record.kind !== 'sampled') return;
      // A turn that calls nothing has ended.
      if (record.calls.length === 0) spansOf(work, { sampled: record, recordedAt: Date.now() });
      else open.set(work, { sampled: record, recordedAt: Date.now() });
    },
  });
}

/** Without `turn`, another process has sampled it: its tools alone are of this one. */
function spansOf(work: Work, turn: OpenTurn | undefined, observed?: LedgerObserved): void {
  const now = Date.now();
  const toolsMs = observed?.results.reduce((total, { ms }) => total + ms, 0) ?? 0;
  const toolsAt = turn?.recordedAt ?? now - toolsMs;
  const number = turn?.sampled.turn ?? observed?.turn ?? 0;
  const startAt = turn ? Date.parse(turn.sampled.startedAt) : toolsAt;
  const span = begin(`turn ${number}`, startAt, { ...attributesOf(work), 'rollout.turn': number });
  if (turn) {
    const { sampled } = turn;
    within(span, 'llm', startAt, sampled.ms, {
      'server.address': sampled.server,
      'gen_ai.usage.input_tokens': sampled.promptLength,
      'gen_ai.usage.output_tokens': sampled.ids.length,
      'gen_ai.response.finish_reasons': [sampled.finish],
      'policy.version': sampled.policyVersion,
    });
  }
  let at = toolsAt;
  for (const { tool, status, exitCode, ms } of observed?.results ?? []) {
    within(span, `tool ${tool}`, at, ms, {
      'tool.status': status,
      ...(exitCode === null ? {} : { 'tool.exit_code': exitCode }),
    });
    at += ms;
  }
  span.end(now);
}

function within(parent: Span, name: string, startAt: number, ms: number, attributes: Attributes): void {
  begin(name, startAt, attributes, trace.setSpan(context.active(), parent)).end(startAt + ms);
}

/** As a part of the stage that is under way, if not of something else. */
function begin(name: string, startTime: number, attributes: Attributes, parent = context.active()): Span {
  return trace.getTracer('durable-rollouts').startSpan(name, { startTime, attributes }, parent);
}

function attributesOf({ rollout, attempt, kind }: Work): Attributes {
  return {
    ...(rollout === undefined ? {} : { 'rollout.id': rollout }),
    ...(attempt === undefined ? {} : { 'rollout.attempt': attempt }),
    ...(kind === undefined ? {} : { 'rollout.kind': kind }),
  };
}
