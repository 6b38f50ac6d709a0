import type { Worker } from '@temporalio/worker';

/**
 * Runs workers until the process is told to stop: by SIGTERM or SIGINT, or because the process that started
 * it over an IPC channel is gone. Stopping is a deploy, not a cancellation: activities end with
 * worker-shutdown and their rollouts go on elsewhere.
 */
export async function runUntilStopped(workers: readonly Worker[]): Promise<void> {
  const stop = () => {
    for (const worker of workers) {
      if (worker.getState() === 'RUNNING') worker.shutdown();
    }
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  process.once('disconnect', stop);
  await Promise.all(
    workers.map(async (worker) => {
      try {
        await worker.run();
      } finally {
        stop(); // one worker that cannot go on takes the process with it, so that it is noticed
      }
    }),
  );
}

/** Tells the process that started this one, if it listens, that everything is up. */
export function announceReady(details: Record<string, unknown> = {}): void {
  process.send?.({ ready: true, ...details });
}
