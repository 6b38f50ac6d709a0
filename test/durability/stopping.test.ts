import assert from 'node:assert/strict';
import test from 'node:test';
import { runUntilStopped } from '../../workers/process.ts';

/** A worker that runs until it is told to stop, or for ever. */
function worker(isDeaf: boolean) {
  let end!: () => void;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  let state: 'RUNNING' | 'STOPPING' = 'RUNNING';
  return {
    getState: () => state,
    shutdown: () => {
      state = 'STOPPING';
      if (!isDeaf) end();
    },
    run: () => ended,
  };
}

test('a process ends though one of its workers does not', async () => {
  const deaf = worker(true);
  const running = runUntilStopped([worker(false), deaf], 10, 20);
  process.emit('SIGTERM');
  await assert.rejects(running, /workers did not stop within 0\.03 s/);
  assert.equal(deaf.getState(), 'STOPPING');
});

test('a process whose workers have stopped waits for nothing more', async () => {
  const failing = { ...worker(false), run: async () => Promise.reject(new Error('no namespace')) };
  await assert.rejects(runUntilStopped([worker(false), failing], 0, 3_600_000), /^Error: no namespace$/);
  const running = runUntilStopped([worker(false)], 0, 3_600_000);
  process.emit('SIGINT');
  await running;
});
