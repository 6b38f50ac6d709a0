import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PausableTimer } from '../../workflows/pausable-timer.ts';

/** A clock that moves when it is told to, and the timers that hang on it. */
function makeTime() {
  let now = 0;
  const timers = new Map<number, { at: number; expired: () => void }>();
  let id = 0;
  return {
    now: () => now,
    startTimer: (ms: number, expired: () => void) => {
      const mine = id++;
      timers.set(mine, { at: now + ms, expired });
      return () => timers.delete(mine);
    },
    pass(ms: number) {
      const end = now + ms;
      for (;;) {
        const due = [...timers].filter(([, { at }]) => at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
        if (!due) break;
        now = Math.max(now, due[1].at);
        timers.delete(due[0]);
        due[1].expired();
      }
      now = end;
    },
    open: () => timers.size,
  };
}

test('paused time is never active time', () => {
  const time = makeTime();
  const expired: number[] = [];
  const timer = new PausableTimer(100, time, () => expired.push(time.now()));
  timer.start();
  time.pass(60);
  timer.stop();
  time.pass(1000); // a pause longer than the budget
  assert.equal(timer.activeMs, 60);
  assert.equal(timer.remainingMs, 40);
  timer.start();
  time.pass(39);
  assert.deepEqual(expired, []);
  time.pass(1);
  assert.deepEqual(expired, [1100]);
});

test('a start that is heard late counts from when it was, and one who measured closer is believed', () => {
  const time = makeTime();
  const expired: number[] = [];
  const timer = new PausableTimer(100, time, () => expired.push(time.now()));
  time.pass(30);
  timer.start(30);
  timer.start(7); // heard twice
  assert.equal(timer.activeMs, 30);
  time.pass(20);
  timer.stop(25); // its worker died 25 ms into the period
  assert.equal(timer.activeMs, 25);
  timer.add(5);
  timer.start();
  time.pass(69);
  assert.deepEqual(expired, []);
  time.pass(1);
  assert.deepEqual(expired, [120]);
});

test('as a model says, for any order of starts, stops and passing time', () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant('start' as const), ms: fc.nat(50) }),
    fc.record({ kind: fc.constant('stop' as const), ms: fc.constant(0) }),
    fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(80) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.integer({ min: 1, max: 300 }), (steps, budget) => {
      const time = makeTime();
      let expiredAfter: number | null = null;
      const timer = new PausableTimer(budget, time, () => {
        expiredAfter ??= timer.activeMs;
      });
      // The model: every millisecond is active or it is not.
      let active = 0;
      let running = false;
      for (const { kind, ms } of steps) {
        if (kind === 'start' && !running) {
          active += ms;
          running = true;
          timer.start(ms);
        } else if (kind === 'start') timer.start(ms);
        else if (kind === 'stop') {
          running = false;
          timer.stop();
        } else {
          if (running) active += ms;
          time.pass(ms);
        }
        time.pass(0);
        assert.equal(timer.activeMs, active);
        assert.equal(timer.remainingMs, Math.max(0, budget - active));
        assert.equal(timer.running, running);
        assert.equal(expiredAfter !== null, active >= budget && (running || expiredAfter !== null));
        assert.ok(time.open() <= (running ? 1 : 0), 'no timer is left behind');
      }
      // Never early; late only by what had passed before its start was heard.
      if (expiredAfter !== null) assert.ok(expiredAfter >= budget);
    }),
  );
});
