import { isDeepStrictEqual } from 'node:util';
import { TokenSequence } from '../activities/trajectory/tokens.ts';
import { FAILURES, messageOf } from '../contracts/failures.ts';
import type { LedgerRecord, LedgerSampled } from '../contracts/ledger.ts';
import type { Trajectory } from '../contracts/trajectory.ts';
import type { Evidence } from './evidence.ts';
import type { Served } from './policy-server.ts';
import type { TaskKind } from './tasks.ts';

/** How a rollout of each kind has to end, whatever happened to it. */
const ENDS: Record<TaskKind, readonly string[]> = {
  usual: ['completed'],
  long: ['truncated'],
  memory: ['completed'],
  timeout: ['completed'],
  fails: ['completed'],
  graderCrash: ['failed'],
  cancelled: ['cancelled', 'completed'],
};

/** What a rollout of these kinds must have been told by the tool. */
const TOLD: Partial<Record<TaskKind, RegExp>> = {
  memory: /memory limit reached/,
  timeout: /interrupted after/,
  fails: /exit status 9/,
};

/** Everything that is not as it has to be with one rollout, as sentences. `calm`: undisturbed. */
export function problemsOf(calm: Evidence, storm: Evidence, served: readonly Served[]): string[] {
  const problems = [
    ...problemsOfEnd(storm),
    ...problemsOfTokens(calm, storm),
    ...problemsOfCalls(storm),
    ...problemsOfLedgers(storm),
    ...problemsOfRequests(storm, served),
  ];
  const { rolloutId, task } = storm.flight;
  return problems.map((problem) => `${rolloutId} (${task.kind}): ${problem}`);
}

function problemsOfEnd({ flight, terminal }: Evidence): string[] {
  const { task, result } = flight;
  if (!terminal || !result) return ['has no terminal record in the store'];
  const problems: string[] = [];
  if (!isDeepStrictEqual(JSON.parse(JSON.stringify(result)), JSON.parse(JSON.stringify(terminal)))) {
    problems.push('its workflow returned another record than the store has');
  }
  const { outcome, reward, failure, retried } = terminal;
  if (!ENDS[task.kind].includes(outcome)) {
    problems.push(`ended as ${outcome}: ${failure?.type} ${failure?.message ?? ''}`);
  }
  if ((outcome === 'completed' || outcome === 'truncated') !== (reward !== null)) {
    problems.push(`${outcome} with the reward ${reward?.total}`);
  }
  if (reward && (reward.total !== 1 || reward.parts.ran !== reward.parts.asked)) {
    problems.push(`was graded ${JSON.stringify(reward)}`);
  }
  if (task.kind === 'graderCrash' && failure?.type !== 'GraderFailed') {
    problems.push(`failed as ${failure?.type} ${failure?.message ?? ''}`);
  }
  const policyCaused = retried.filter(({ type }) => FAILURES[type].cause !== 'infrastructure');
  if (policyCaused.length > 0) problems.push(`was tried again for ${JSON.stringify(policyCaused)}`);
  return problems;
}

/** Of a trajectory, what has to be the same in every run. */
function tokensOf({ input_ids, output_ids, loss_mask, logprobs, policy_versions }: Trajectory) {
  return { input_ids, output_ids, loss_mask, logprobs, policy_versions };
}

function problemsOfTokens(calm: Evidence, storm: Evidence): string[] {
  const { trajectory, terminal, flight } = storm;
  const undisturbed = calm.trajectory as Trajectory;
  const problems: string[] = [];
  if (terminal?.outcome === 'cancelled') {
    if (!trajectory) return noTokens(storm) || storm.lostWithHost ? [] : ['lost the tokens that it had'];
    const { length } = trajectory.output_ids;
    for (const field of ['output_ids', 'loss_mask', 'logprobs'] as const) {
      if (!isDeepStrictEqual(trajectory[field], undisturbed[field].slice(0, length))) {
        problems.push(`${field} are not how those of an undisturbed run begin`);
      }
    }
  } else if (!trajectory) {
    problems.push('has no trajectory');
  } else if (!isDeepStrictEqual(tokensOf(trajectory), tokensOf(undisturbed))) {
    problems.push('its tokens are not those of an undisturbed run');
  }
  const told = TOLD[flight.task.kind];
  if (told && !trajectory?.messages.some(({ role, content }) => role === 'tool' && told.test(content))) {
    problems.push(`the policy was never told ${told}`);
  }
  return problems;
}

function noTokens({ ledgers, terminal }: Evidence): boolean {
  return !(ledgers.get(terminal?.attempt ?? 0) ?? []).some(({ record }) => record.kind === 'sampled');
}

function problemsOfCalls({ stored }: Evidence): string[] {
  const end = stored?.at(-1);
  if (end?.kind !== 'end') return [];
  const ran = (end.outcome.calls ?? []) as string[];
  const twice = ran.filter((line, index) => ran.indexOf(line) !== index);
  return twice.length > 0 ? [`tool calls ran twice: ${twice.join('; ')}`] : [];
}

/** The ledgers of all attempts: written by ever newer holders, each turn once, together what the store has. */
function problemsOfLedgers({ ledgers, stored, terminal, trajectory }: Evidence): string[] {
  const problems: string[] = [];
  for (const [attempt, lines] of ledgers) {
    const records = lines.map(({ record }) => record);
    const where = `the ledger of attempt ${attempt}`;
    if (lines.some(({ fence }, index) => fence < (lines[index - 1]?.fence ?? 0))) {
      problems.push(`${where} was written by one that had been superseded`);
    }
    const ended = records.filter((record) => record.kind === 'sampled' && record.finish !== 'abort');
    if (ended.some((record, index) => (record as LedgerSampled).turn !== index)) {
      problems.push(`${where} has turns twice or not at all`);
    }
    const tokens = tokensIn(records);
    const longest = trajectory?.output_ids ?? [];
    const common = typeof tokens === 'string' ? 0 : Math.min(tokens.length, longest.length);
    if (typeof tokens === 'string') problems.push(`${where} contradicts itself: ${tokens}`);
    else if (!isDeepStrictEqual(tokens.slice(0, common), longest.slice(0, common))) {
      problems.push(`${where} has other tokens than the trajectory`);
    }
    if (attempt === terminal?.attempt && stored && !isDeepStrictEqual(stored, records)) {
      problems.push(`${where} is not what the store has`);
    }
  }
  return problems;
}

/** All tokens after the prompt, or what is wrong with the records. */
function tokensIn(records: readonly LedgerRecord[]): readonly number[] | string {
  try {
    return TokenSequence.fromLedger(records)?.outputIds ?? [];
  } catch (error) {
    return messageOf(error);
  }
}

/** Requests for tokens that were sent beyond those whose tokens were recorded. */
export function requestsRepeated({ ledgers }: Evidence, served: readonly Served[]): number {
  const recorded = [...ledgers.values()].flat().filter(({ record }) => record.kind === 'sampled').length;
  return served.length - recorded;
}

/**
 * An entry into the run stage that does not come to its end may waste one request: the turn in flight. A request that
 * the server refused before it gave a token has wasted nothing, and is sent again within its entry.
 */
function problemsOfRequests(storm: Evidence, served: readonly Served[]): string[] {
  const entries = storm.activities.filter(
    ({ type, startedAt }) => type === 'run' && startedAt !== null,
  ).length;
  const refused = served.filter(gaveNothing).length;
  const repeated = requestsRepeated(storm, served) - refused;
  if (repeated <= Math.max(0, entries - 1) || storm.terminal?.outcome === 'cancelled') return [];
  return [
    `${repeated} requests repeated over ${entries} entries into the run stage, ${refused} more refused`,
  ];
}

/** The server was told to refuse this request, and did so before its first token. */
function gaveNothing({ end, delivered }: Served): boolean {
  return delivered === 0 && (end === 'error' || end === 'hang');
}

/** Tokens of these records that the policy sampled. */
export function sampledIn(records: readonly LedgerRecord[]): number {
  return records.reduce((sum, record) => sum + (record.kind === 'sampled' ? record.ids.length : 0), 0);
}
