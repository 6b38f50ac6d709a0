import type { SandboxSpec } from '../../../contracts/sandbox.ts';
import { type Language, type Problem, PYTHON_FACTOR } from './problem.ts';

/** Of processor time, so much time on the clock: machines are shared. */
const CLOCK_FACTOR = 4;
const CLOCK_GRACE_MS = 10_000;
/** Seconds that a program may sleep, where the row's limit is shorter: it does not wait for itself alone. */
const LEAST_IDLE_SECONDS = 5;
const MB = 1024 ** 2;

/** Bounds of one test, as a sandbox and a call of a program in it take them. */
export interface TestLimits {
  readonly spec: Partial<SandboxSpec>;
  readonly timeoutMs: number;
}

/** `outputBytes`: what the program may print and write to files. */
export function limitsOf(problem: Problem, language: Language, outputBytes: number): TestLimits {
  const cpuSeconds = Math.ceil(problem.seconds * (language === 'python' ? PYTHON_FACTOR : 1));
  const limits = {
    memoryBytes: problem.memoryBytes,
    processes: 64,
    cpuSeconds,
    // For the clock's sake: who waits for what never comes holds a place that others wait for.
    idleSeconds: Math.max(problem.seconds, LEAST_IDLE_SECONDS),
    fileBytes: Math.max(outputBytes, 64 * MB),
    diskBytes: Math.max(2 * outputBytes, 256 * MB),
    diskFiles: 1000,
    openFiles: 256,
    outputBytes,
  };
  return { spec: { limits }, timeoutMs: cpuSeconds * 1000 * CLOCK_FACTOR + CLOCK_GRACE_MS };
}
