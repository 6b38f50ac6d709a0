import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { CancelReason, RolloutRequest } from '../../contracts/request.ts';
import {
  adoptProblem,
  cancelProblem,
  endProblem,
  floorProblem,
  leaveHostProblem,
  requestProblem,
  stageStartedProblem,
  workerProblem,
} from '../../workflows/guards.ts';

const schemas = {
  cancel: z.object({ reason: CancelReason }),
  leaveHost: z.object({ host: z.string() }),
  stageStarted: z.object({
    attempt: z.int().min(1),
    entry: z.int().min(1),
    elapsedMs: z.number().min(0),
  }),
};

const almost = fc.oneof(
  fc.anything(),
  fc.record({ host: fc.oneof(fc.string(), fc.anything()) }),
  fc.record({ reason: fc.oneof(fc.constantFrom(...CancelReason.options), fc.anything()) }),
  fc.record({
    attempt: fc.oneof(fc.integer({ min: -1, max: 3 }), fc.anything()),
    entry: fc.oneof(fc.integer({ min: -1, max: 3 }), fc.anything()),
    elapsedMs: fc.oneof(fc.integer({ min: -5, max: 5 }), fc.double(), fc.anything()),
  }),
);

test('the guards take what the schemas take, and name the field of what they refuse', () => {
  fc.assert(
    fc.property(almost, (payload) => {
      // An array with such properties is no record to a schema; JSON can't bring one.
      fc.pre(!Array.isArray(payload));
      assert.equal(cancelProblem(payload) === null, schemas.cancel.safeParse(payload).success);
      assert.equal(leaveHostProblem(payload) === null, schemas.leaveHost.safeParse(payload).success);
      assert.equal(stageStartedProblem(payload) === null, schemas.stageStarted.safeParse(payload).success);
    }),
    { numRuns: 2000 },
  );
  assert.match(cancelProblem({ reason: 'bored' }) ?? '', /^reason: expected one of user, stale/);
  assert.match(stageStartedProblem({ attempt: 1, entry: 0, elapsedMs: 1 }) ?? '', /^entry: /);
  assert.match(stageStartedProblem({ attempt: 1, entry: 1, elapsedMs: -1 }) ?? '', /^elapsedMs: /);
});

test('what groups, batches and pools hear is looked at before it counts', () => {
  const end = { rolloutId: 'r', versions: [3, 4], tokens: 7 };
  assert.equal(endProblem(end), null);
  assert.equal(endProblem({ groupId: 'g', versions: null, tokens: 0 }), null);
  assert.match(endProblem({ ...end, rolloutId: 5 }) ?? '', /^rolloutId or groupId: /);
  for (const versions of [undefined, [3], [3, 'x'], 'x']) {
    assert.match(endProblem({ ...end, versions }) ?? '', /^versions: /);
  }
  assert.match(endProblem({ ...end, tokens: '7' }) ?? '', /^tokens: /);
  const others = { reportTo: adoptProblem, version: floorProblem, worker: workerProblem };
  const right = { reportTo: 'rollout-batch-b', version: 4, worker: 'w' };
  for (const [field, problemOf] of Object.entries(others)) {
    assert.equal(problemOf(right), null);
    for (const payload of [null, undefined, 'x', [], {}, { [field]: null }, { [field]: [] }]) {
      assert.match(problemOf(payload) ?? '', new RegExp(`^${field}: `));
    }
  }
});

test('what the schema makes of a request passes its guard, and each part that it needs is missed', () => {
  const task = { handler: 'math', id: 't', data: {} };
  const request = RolloutRequest.parse({ rolloutId: 'r', task });
  assert.equal(requestProblem(request), null);
  for (const part of ['rolloutId', 'task', 'deadlines', 'attempts', 'limits', 'sampling']) {
    assert.match(requestProblem({ ...request, [part]: undefined }) ?? '', new RegExp(`^${part}`));
  }
  for (const field of ['heartbeatTimeoutSeconds', 'hostLostSeconds', 'pausedSandboxSeconds']) {
    for (const value of [0, -1, Number.NaN, 1e300, '5', null]) {
      assert.match(requestProblem({ ...request, [field]: value }) ?? '', new RegExp(`^${field}`));
    }
  }
  for (const totalSeconds of [0, 1e-9, Infinity]) {
    const deadlines = { ...request.deadlines, totalSeconds };
    assert.match(requestProblem({ ...request, deadlines }) ?? '', /^deadlines.totalSeconds/);
  }
  const limits = { ...request.limits, maxTurns: -1 };
  assert.match(requestProblem({ ...request, limits }) ?? '', /^limits.maxTurns/);
});
