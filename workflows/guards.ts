import { CANCEL_REASONS } from '../contracts/signals.ts';

/*
 * Guards of signal payloads, as small as a workflow needs them: the schemas' library would cost memory in
 * every workflow. Each says what is wrong, or null.
 */

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

function recordOf(payload: unknown): Record<string, unknown> {
  return typeof payload === 'object' && payload !== null ? (payload as Record<string, unknown>) : {};
}
