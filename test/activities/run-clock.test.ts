import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { RunClock } from '../../activities/run-clock.ts';
import { until } from '../support/until.ts';

/** A clock that never ends by itself, and what it has told. */
function makeClock(options: Partial<ConstructorParameters<typeof RunClock>[0]> = {}) {
  const told: [runs: boolean, workedMs: number][] = [];
  const unexpected = () => assert.fail('the time is not over');
  const clock = new RunClock({
    budgetMs: 600_000,
    announceWorkMs: 600_000,
    announceWaitMs: 600_000,
    mostWaitingMs: 600_000,
    expired: unexpected,
    waitedEnough: unexpected,
    announce: (runs, workedMs) => told.push([runs, workedMs]),
    ...options,
  });
  return { clock, told };
}

test('a clock that was stopped counts no more, whatever still has to finish', async () => {
  const { clock } = makeClock();
  await until(() => clock.workedMs > 5, 'the clock runs');
  clock.stop();
  const { workedMs } = clock;
  await delay(20);
  clock.wait(true);
  clock.wait(false);
  await delay(20);
  assert.equal(clock.workedMs, workedMs);
  clock.stop();
  assert.equal(clock.workedMs, workedMs);
});

test('short work is announced by nobody, and of waiting only what would be taken for work', async () => {
  const { clock, told } = makeClock({ announceWaitMs: 0 });
  clock.wait(true);
  await delay(10);
  clock.wait(false);
  await delay(10);
  assert.deepEqual(told, [], 'the workflow’s clock has not begun');
  clock.stop();

  const long = makeClock({ announceWorkMs: 0, announceWaitMs: 0 });
  await until(() => long.told.length === 1, 'the work is told');
  long.clock.wait(true);
  await until(() => long.told.length === 2, 'the waiting is told');
  long.clock.wait(false);
  assert.deepEqual(
    long.told.map(([runs]) => runs),
    [true, false, true],
  );
  long.clock.stop();
});
