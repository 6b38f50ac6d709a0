import type { LimitHit } from '../../../contracts/sandbox.ts';

/** Signals by which the kernel says that a limit was reached, and the limit. */
const SIGNALS: Record<number, LimitHit> = { 24: 'cpu', 25: 'disk' };
const NUMBERS: Record<string, number> = { SIGXCPU: 24, SIGXFSZ: 25 };

/** The limit that a shell's status (128 + signal) tells of. */
export function limitOfStatus(status: number | null): LimitHit | null {
  return (status !== null && SIGNALS[status - 128]) || null;
}

/** The limit that the signal which ended a program tells of. */
export function limitOfSignal(name: string | null): LimitHit | null {
  return (name !== null && SIGNALS[NUMBERS[name] ?? 0]) || null;
}
