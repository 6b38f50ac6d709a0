import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { messageOf } from '../../contracts/failures.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import { Trajectory } from '../../contracts/trajectory.ts';
import { checksumOf, messagesOf, truncationOf, turnsOf } from './assemble.ts';
import { sequencesOf } from './sequences.ts';
import { TokenSequence } from './tokens.ts';

/** One line of a trajectory file as read, and everything that is wrong with it. */
export interface Proof {
  /** Undefined if the line is no trajectory. */
  readonly trajectory?: Trajectory;
  readonly problems: string[];
}

/** Reads one line and proves what can be proven of it alone: its form, its checksum, and that its parts agree. */
export function proveLine(line: string): Proof {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    return { problems: [`is no JSON: ${messageOf(error)}`] };
  }
  const parsed = Trajectory.safeParse(value);
  if (!parsed.success) return { problems: z.prettifyError(parsed.error).split('\n') };
  const trajectory = parsed.data;
  const problems = [...tokenProblems(trajectory), ...turnProblems(trajectory)];
  // Of the line as it stands: reading it by its schema may drop what the schema does not know.
  if (checksumOf(value as object) !== trajectory.checksum) {
    problems.unshift('does not match its checksum: it was changed after it was written');
  }
  const { sequence_index: index, sequence_count: count } = trajectory;
  if (index >= count) problems.push(`calls itself sequence ${index} of ${count}`);
  if (truncationOf(trajectory.finish_reason) !== trajectory.truncated) {
    problems.push(`ended by "${trajectory.finish_reason}", but says truncated: ${trajectory.truncated}`);
  }
  return { trajectory, problems };
}

/** Sampled tokens have a log-probability and a version, others have neither. */
function tokenProblems({ loss_mask, logprobs, policy_versions }: Trajectory): string[] {
  const problems: string[] = [];
  for (const [at, mask] of loss_mask.entries()) {
    const logprob = logprobs[at] as number;
    const version = policy_versions[at] as number;
    if (mask === 0 && (logprob !== 0 || version !== -1)) {
      problems.push(`token ${at} has mask 0, but log-probability ${logprob} and version ${version}`);
    }
    if (mask === 1 && !(logprob <= 0 && Number.isFinite(logprob) && version >= 0)) {
      problems.push(`token ${at} has mask 1, but log-probability ${logprob} and version ${version}`);
    }
  }
  return problems;
}

/**
 * Turns cover the output without a gap, each with what was sampled and then what followed: so the prompt of each
 * is exactly `input_ids` and the output before it.
 */
function turnProblems({ turns, output_ids, loss_mask, policy_versions }: Trajectory): string[] {
  const problems: string[] = [];
  let position = 0;
  for (const [index, turn] of turns.entries()) {
    const before = turns[index - 1];
    // A request that was broken off is followed by one that goes on with the same turn.
    const due = before === undefined ? 0 : before.turn + (before.finish === 'abort' ? 0 : 1);
    const [start, middle] = turn.sampled;
    const [after, end] = turn.observed;
    if (turn.turn !== due) problems.push(`turn ${due} calls itself ${turn.turn}`);
    if (start !== position || after !== middle || middle <= start || end < after) {
      problems.push(
        `turn ${due} has spans [${turn.sampled}) and [${turn.observed}) where ${position} is due`,
      );
    }
    if (loss_mask.slice(start, middle).includes(0)) problems.push(`turn ${due} sampled tokens with mask 0`);
    if (loss_mask.slice(after, end).includes(1)) problems.push(`turn ${due} observed tokens with mask 1`);
    const oldest = policy_versions.slice(start, middle).reduce((low, one) => Math.min(low, one), Infinity);
    if (middle > start && oldest !== turn.policy_version) {
      problems.push(`turn ${due} says version ${turn.policy_version}, its oldest token is of ${oldest}`);
    }
    position = end;
  }
  if (position !== output_ids.length) {
    problems.push(`turns end at ${position} of ${output_ids.length} output tokens`);
  }
  return problems;
}

/**
 * What differs between a trajectory and the ledger that its tokens and turns were recorded in, as they came.
 * Each record of a ledger says how long its prompt was, which must be all that was recorded before it.
 */
export function ledgerProblems(trajectory: Trajectory, records: readonly LedgerRecord[]): string[] {
  const all = sequencesOf(records);
  const { sequence_index: index, sequence_count: count } = trajectory;
  if (count !== all.length) return [`calls itself one of ${count} sequences, its ledger has ${all.length}`];
  const own = all[index] ?? [];
  let sequence: TokenSequence | undefined;
  try {
    sequence = TokenSequence.fromLedger(own);
  } catch (error) {
    return [`its ledger: ${messageOf(error)}`];
  }
  const [begin] = own;
  const pairs: [string, unknown, unknown][] = [
    ['input_ids', trajectory.input_ids, sequence?.inputIds],
    ['output_ids', trajectory.output_ids, sequence?.outputIds],
    ['logprobs', trajectory.logprobs, sequence?.logprobs],
    ['loss_mask', trajectory.loss_mask, sequence?.lossMask],
    ['policy_versions', trajectory.policy_versions, sequence?.policyVersions],
    ['turns', trajectory.turns, turnsOf(own)],
    ['messages', trajectory.messages, messagesOf(own)],
    ['model', trajectory.model, begin?.kind === 'begin' ? begin.model : undefined],
  ];
  return pairs
    .filter(([, ours, recorded]) => !isDeepStrictEqual(ours, recorded))
    .map(([field]) => `${field} differ from what its ledger recorded`);
}

/** Positions of sampled tokens within `output_ids`: all, or `most` of them spread evenly, in runs `[start, end)`. */
export function runsToScore({ loss_mask }: Trajectory, most: number): [number, number][] {
  const sampled = loss_mask.flatMap((mask, at) => (mask === 1 ? [at] : []));
  const step = Math.max(1, sampled.length / most);
  const chosen = new Set(
    Array.from({ length: Math.min(most, sampled.length) }, (_, n) => sampled[Math.floor(n * step)] as number),
  );
  const runs: [number, number][] = [];
  for (const at of chosen) {
    const last = runs.at(-1);
    if (last?.[1] === at) last[1] = at + 1;
    else runs.push([at, at + 1]);
  }
  return runs;
}
