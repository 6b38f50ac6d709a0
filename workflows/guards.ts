import { CANCEL_REASONS } from '../contracts/signals.ts';

/*
 * Guards of signal payloads, as small as a workflow needs them: the schemas' library would cost memory in
 * every workflow. Each says what is wrong, or null.
 */

/** What timers can count, in seconds: nothing, and numbers that are written with an exponent, fail every task. */
const [LEAST, MOST] = [0.001, 2_000_000];

/** Numbers that the workflow and the agent reckon with: least, most, and whether each request has it. */
const NUMBERS: readonly (readonly [field: string, least: number, most: number, needed: boolean])[] = [
  ['deadlines.initSeconds', LEAST, MOST, true],
  ['deadlines.queueSeconds', LEAST, MOST, true],
  ['deadlines.runSeconds', LEAST, MOST, false],
  ['deadlines.evaluateSeconds', LEAST, MOST, false],
  ['deadlines.totalSeconds', LEAST, MOST, false],
  ['heartbeatTimeoutSeconds', LEAST, MOST, true],
  ['hostLostSeconds', LEAST, MOST, true],
  ['pausedSandboxSeconds', LEAST, MOST, false],
  ['attempts.rollout', 1, 100, true],
  ['attempts.stage', 1, 100, true],
  ['limits.maxTurns', 1, 10_000, true],
  ['limits.toolTimeoutSeconds', LEAST, MOST, true],
  ['sampling.temperature', 0, 10, true],
  ['sampling.maxTokensPerTurn', 1, 131_072, true],
];

/** @param payload that a rollout is started with; the client and the gateway check it whole */
export function requestProblem(payload: unknown): string | null {
  const request = recordOf(payload);
  if (typeof request.rolloutId !== 'string') return 'rolloutId: expected a text';
  const { handler, id } = recordOf(request.task);
  if (typeof handler !== 'string' || typeof id !== 'string') return 'task: expected handler and id';
  for (const [field, least, most, needed] of NUMBERS) {
    const value = field.split('.').reduce<unknown>((part, name) => recordOf(part)[name], request);
    if (value === undefined && !needed) continue;
    if (typeof value === 'number' && value >= least && value <= most) continue;
    return `${field}: expected a number from ${least} to ${most}${needed ? '' : ', or nothing'}`;
  }
  return null;
}

/** @param payload of signal or update `cancel` */
export function cancelProblem(payload: unknown): string | null {
  const { reason } = recordOf(payload);
  if ((CANCEL_REASONS as readonly unknown[]).includes(reason)) return null;
  return `reason: expected one of ${CANCEL_REASONS.join(', ')}`;
}

/** @param payload of signals `stageStarted` and `stageWaits` */
export function stageStartedProblem(payload: unknown): string | null {
  const { attempt, entry, elapsedMs } = recordOf(payload);
  for (const [name, value] of Object.entries({ attempt, entry })) {
    if (!Number.isSafeInteger(value) || (value as number) < 1)
      return `${name}: expected a whole number from 1`;
  }
  const valid = typeof elapsedMs === 'number' && Number.isFinite(elapsedMs) && elapsedMs >= 0;
  return valid ? null : 'elapsedMs: expected milliseconds, not negative';
}

/** @param payload of signal `leaveHost` */
export function leaveHostProblem(payload: unknown): string | null {
  return typeof recordOf(payload).host === 'string' ? null : 'host: expected a text';
}

/** @param payload of the signals by which a rollout tells its group, and a group its batch, that it has ended */
export function endProblem(payload: unknown): string | null {
  const { rolloutId, groupId, versions, tokens } = recordOf(payload);
  if (typeof (rolloutId ?? groupId) !== 'string') return 'rolloutId or groupId: expected a text';
  const pair = Array.isArray(versions) && versions.length === 2 && versions.every(Number.isSafeInteger);
  if (versions !== null && !pair) return 'versions: expected two whole numbers, or null';
  return Number.isSafeInteger(tokens) ? null : 'tokens: expected a whole number';
}

/** @param payload of signal `adopt` */
export function adoptProblem(payload: unknown): string | null {
  return typeof recordOf(payload).reportTo === 'string' ? null : 'reportTo: expected a text';
}

/** @param payload of a batch's signal `floor` */
export function floorProblem(payload: unknown): string | null {
  return Number.isSafeInteger(recordOf(payload).version) ? null : 'version: expected a whole number';
}

/** @param payload of a pool's signals of workers */
export function workerProblem(payload: unknown): string | null {
  return typeof recordOf(payload).worker === 'string' ? null : 'worker: expected a text';
}

function recordOf(payload: unknown): Record<string, unknown> {
  return typeof payload === 'object' && payload !== null ? (payload as Record<string, unknown>) : {};
}
