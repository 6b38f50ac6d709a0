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

/** What programs say that were refused something: in the C library's words, or in those of Python and C++. */
const REFUSED: [LimitHit, RegExp][] = [
  ['memory', /\bMemoryError\b|\bstd::bad_alloc\b|Cannot allocate memory/],
  ['disk', /No space left on device|File too large|File size limit exceeded/],
  ['openFiles', /Too many open files/],
  ['cpu', /CPU time limit exceeded/],
];
/** Characters at the end of what was printed in which that is looked for. */
const LAST_WORDS = 2000;

/** The limit that a program which failed tells of in its last words. */
export function limitOfWords(exitCode: number | null, text: string): LimitHit | null {
  if (exitCode === 0) return null;
  const last = text.slice(-LAST_WORDS);
  return REFUSED.find(([, words]) => words.test(last))?.[0] ?? null;
}
