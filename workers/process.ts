import type { Worker } from '@temporalio/worker';

/** Milliseconds beyond their activities' that workers may take to stop: where the server is gone, some never do. */
const BEYOND_MS = 20_000;

/**
 * Runs workers until the process is told to stop: by SIGTERM or SIGINT, or because the process that started
 * it over an IPC channel is gone. Stopping is a deploy, not a cancellation: activities end with
 * worker-shutdown and their rollouts go on elsewhere. `activitiesMs`: how long they may take for that.
 * @throws if the workers have not stopped then, nor soon after: the process is to end as it is
 */
export async function runUntilStopped(
  workers: readonly Pick<Worker, 'getState' | 'shutdown' | 'run'>[],
  activitiesMs: number,
  beyondMs = BEYOND_MS,
): Promise<void> {
  let giveUp!: (why: Error) => void;
  const givenUp = new Promise<never>((_, reject) => {
    giveUp = reject;
  });
  let timer: NodeJS.Timeout | undefined;
  const stop = () => {
    const mostMs = activitiesMs + beyondMs;
    timer ??= setTimeout(() => giveUp(new Error(`workers did not stop within ${mostMs / 1000} s`)), mostMs);
    for (const worker of workers) {
      if (worker.getState() === 'RUNNING') worker.shutdown();
    }
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  process.once('disconnect', stop);
  const stopped = workers.map(async (worker) => {
    try {
      await worker.run();
    } finally {
      stop(); // one worker that cannot go on takes the process with it, so that it is noticed
    }
  });
  try {
    await Promise.race([Promise.all(stopped), givenUp]);
  } finally {
    clearTimeout(timer);
  }
}

/** Tells the process that started this one, if it listens, that everything is up. */
export function announceReady(details: Record<string, unknown> = {}): void {
  process.send?.({ ready: true, ...details });
}
