import { CANCEL_REASONS } from '../contracts/signals.ts';

/*
 * Guards of signal payloads, as small as a workflow needs them: the schemas' library would cost memory in
 * every workflow. Each says what is wrong, or null.
 */

/** @param payload that a rollout is started with; the client and the gateway check it whole */
export function requestProblem(payload: unknown): string | null {
  const request = recordOf(payload);
  if (typeof request.rolloutId !== 'string') return 'rolloutId: expected a text';
  const { handler, id } = recordOf(request.task);
  if (typeof handler !== 'string' || typeof id !== 'string') return 'task: expected handler and id';
  const numbers = {
    deadlines: ['initSeconds', 'queueSeconds'],
    attempts: ['rollout', 'stage'],
    limits: ['maxTurns', 'toolTimeoutSeconds'],
    sampling: ['temperature', 'maxTokensPerTurn'],
  };
  for (const [part, names] of Object.entries(numbers)) {
    for (const name of names) {
      const value = recordOf(request[part])[name];
      if (typeof value !== 'number' || !(value >= 0)) return `${part}.${name}: expected a number`;
    }
  }
  for (const name of ['runSeconds', 'evaluateSeconds']) {
    const { [name]: value = 0 } = recordOf(request.deadlines);
    if (typeof value !== 'number' || !(value >= 0)) return `deadlines.${name}: expected a number, or nothing`;
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

function recordOf(payload: unknown): Record<string, unknown> {
  return typeof payload === 'object' && payload !== null ? (payload as Record<string, unknown>) : {};
}
