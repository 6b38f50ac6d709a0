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

/** What programs say that were refused memory: Python, C++, and whoever asks the C library. */
const REFUSED = /\bMemoryError\b|\bstd::bad_alloc\b|Cannot allocate memory/;
/** Characters at the end of what was printed in which that is looked for. */
const LAST_WORDS = 2000;

/** The limit that a program which failed tells of in its last words. */
export function limitOfWords(exitCode: number | null, text: string): LimitHit | null {
  return exitCode !== 0 && REFUSED.test(text.slice(-LAST_WORDS)) ? 'memory' : null;
}
