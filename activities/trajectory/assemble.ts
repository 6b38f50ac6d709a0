import { createHash } from 'node:crypto';
import { RolloutError } from '../../contracts/failures.ts';
import type { LedgerObserved, LedgerRecord, LedgerSampled } from '../../contracts/ledger.ts';
import type { RolloutRequest } from '../../contracts/request.ts';
import { ToolCallStatus } from '../../contracts/tools.ts';
import {
  type ChatMessage,
  type Reward,
  TRAJECTORY_SCHEMA_VERSION,
  Trajectory,
  type Truncation,
  type Turn,
} from '../../contracts/trajectory.ts';
import { sequencesOf } from './sequences.ts';
import { TokenSequence } from './tokens.ts';

/** What a trajectory says beyond its ledger. */
export interface AssembleContext {
  readonly request: RolloutRequest;
  readonly workflowRunId: string;
  readonly attempt: number;
  readonly reward: Reward | null;
  readonly metadata: Record<string, unknown>;
}

/**
 * Makes the trajectory records from the records of one attempt's ledger, one per sequence. Pure.
 * @throws RolloutError StoreCorrupt if the ledger contradicts itself.
 */
export function assembleTrajectories(
  records: readonly LedgerRecord[],
  context: AssembleContext,
): Trajectory[] {
  const sequences = sequencesOf(records);
  return sequences.map((own, index) => assembleTrajectory(own, context, { index, count: sequences.length }));
}

/**
 * Makes one trajectory record from the records of one sequence, by default the only one. Pure.
 * @throws RolloutError StoreCorrupt if they contradict each other.
 */
export function assembleTrajectory(
  records: readonly LedgerRecord[],
  context: AssembleContext,
  { index, count }: { index: number; count: number } = { index: 0, count: 1 },
): Trajectory {
  const { model, turns, messages, ...tokens } = recordedSequence(records);
  const end = records.find((record) => record.kind === 'end');
  const ended = end?.ended ?? 'aborted';
  const { request } = context;
  const record: Omit<Trajectory, 'checksum'> = {
    schema_version: TRAJECTORY_SCHEMA_VERSION,
    rollout_id: request.rolloutId,
    workflow_run_id: context.workflowRunId,
    attempt: context.attempt,
    sequence_index: index,
    sequence_count: count,
    task: request.task,
    sample: request.sample,
    group_id: request.groupId ?? null,
    batch_id: request.batchId ?? null,
    ...tokens,
    reward: context.reward,
    finish_reason: ended,
    truncated: truncationOf(ended),
    turns,
    messages,
    sampling: request.sampling,
    model,
    metadata: { ...context.metadata, tool_calls: toolCallCounts(records) },
  };
  return Trajectory.parse({ ...record, checksum: checksumOf(record) });
}

/** What a trajectory has of one sequence's ledger alone, whether or not that has come to its end. */
export type RecordedSequence = Pick<
  Trajectory,
  'input_ids' | 'output_ids' | 'logprobs' | 'loss_mask' | 'policy_versions' | 'turns' | 'messages' | 'model'
>;

/** @throws RolloutError StoreCorrupt if the records contradict each other */
export function recordedSequence(records: readonly LedgerRecord[]): RecordedSequence {
  const begin = records[0];
  const sequence = TokenSequence.fromLedger(records);
  if (begin?.kind !== 'begin' || !sequence) throw new RolloutError('StoreCorrupt', 'the ledger is empty');
  return {
    input_ids: [...sequence.inputIds],
    output_ids: sequence.outputIds,
    logprobs: sequence.logprobs,
    loss_mask: sequence.lossMask,
    policy_versions: sequence.policyVersions,
    turns: turnsOf(records),
    messages: messagesOf(records),
    model: begin.model,
  };
}

/** The truncation that a way of ending stands for, if it is one. */
export function truncationOf(ended: Trajectory['finish_reason']): Truncation | null {
  return ended === 'finished' || ended === 'aborted' ? null : ended;
}

/** `sha256:` and the digest of a record's JSON without its `checksum`, keys in the record's order. */
export function checksumOf(record: object): string {
  const { checksum: _, ...rest } = record as { checksum?: string };
  return `sha256:${createHash('sha256').update(JSON.stringify(rest)).digest('hex')}`;
}

/** How many tool calls were read with which status. */
function toolCallCounts(records: readonly LedgerRecord[]): Record<ToolCallStatus, number> {
  const calls = records.flatMap((record) => (record.kind === 'sampled' ? record.calls : []));
  const counts = ToolCallStatus.options.map((status) => [
    status,
    calls.filter((call) => call.status === status).length,
  ]);
  return Object.fromEntries(counts);
}

/** The turns of one sequence, as a trajectory tells of them. */
export function turnsOf(records: readonly LedgerRecord[]): Turn[] {
  const turns: Turn[] = [];
  let position = 0;
  for (const [index, sampled] of records.entries()) {
    if (sampled.kind !== 'sampled') continue;
    const next = records[index + 1]; // a request that was broken off is followed by the one that went on
    const turn = turnOf(sampled, next?.kind === 'observed' ? next : undefined, position);
    turns.push(turn);
    position = turn.observed[1];
  }
  return turns;
}

function turnOf(sampled: LedgerSampled, observed: LedgerObserved | undefined, start: number): Turn {
  const middle = start + sampled.ids.length;
  return {
    turn: sampled.turn,
    sampled: [start, middle],
    observed: [middle, middle + (observed?.deltaIds.length ?? 0)],
    finish: sampled.finish,
    policy_version: sampled.policyVersion,
    server: sampled.server,
    started_at: sampled.startedAt,
    generate_ms: sampled.ms,
    tool_calls: sampled.calls.map((call) => {
      const result = observed?.results.find((candidate) => candidate.callId === call.callId);
      return {
        call_id: call.callId,
        tool: call.tool,
        arguments: call.arguments,
        call_status: call.status,
        result_status: result?.status ?? null,
        exit_code: result?.exitCode ?? null,
        ms: result?.ms ?? null,
      };
    }),
  };
}

/**
 * The conversation as text, in order; a turn that was broken off and went on is one message. Of several sequences, one
 * conversation after the other.
 */
export function messagesOf(records: readonly LedgerRecord[]): ChatMessage[] {
  return sequencesOf(records).flatMap(messagesOfOne);
}

function messagesOfOne(records: readonly LedgerRecord[]): ChatMessage[] {
  return records.flatMap((record, index): ChatMessage[] => {
    if (record.kind === 'begin' || record.kind === 'observed') return record.messages;
    if (record.kind !== 'sampled' || records[index + 1]?.kind === 'sampled') return [];
    return [{ role: 'assistant', content: record.text }];
  });
}
