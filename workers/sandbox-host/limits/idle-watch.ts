import { type ProcessInfo, threadsWork } from '../processes.ts';

/** Milliseconds that one look may stand for: what passed while nobody looked is not held against a program. */
const MOST_MS = 200;

/**
 * Adds up the time that a command sleeps: nothing in the sandbox runs, waits for a processor or for a disk. So a machine
 * that is busy makes nothing idle.
 */
export class IdleWatch {
  private idleMs = 0;
  private last = 0;

  /** A command begins. */
  begin(): void {
    this.idleMs = 0;
    this.last = performance.now();
  }

  /** Milliseconds slept so far. `processes`: all but the first; none while the command is being started. */
  look(processes: readonly ProcessInfo[], proc: string): number {
    const now = performance.now();
    const passed = Math.min(now - this.last, MOST_MS);
    this.last = now;
    const works = processes.some(
      (process) => process.works || (process.threads > 1 && threadsWork(process.pid, proc)),
    );
    if (processes.length > 0 && !works) this.idleMs += passed;
    return this.idleMs;
  }
}
