import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fenced, startGrader, verdictsOf } from './grader.ts';

test('tests that never end on what a solution returned are its doing; tests that never end by themselves have failed', async (t) => {
  const { grade } = await startGrader(t);
  const task = (test: string) => ({
    task_id: 'a',
    prompt: 'def f(x):\n    """ Any. """\n',
    entry_point: 'f',
    test,
  });
  const counting = task(
    'def check(candidate):\n    n = 0\n    for _ in range(candidate(3)): n += 1\n    assert n == 3\n',
  );
  const endless = task('def check(candidate):\n    while True: candidate\n');
  const answer = fenced('python', 'def f(x): return 10 ** 15');
  const [counted] = await Promise.all([
    grade('code', counting, answer),
    assert.rejects(grade('code', endless, answer), { type: 'GraderFailed' }),
  ]);
  assert.deepEqual([counted.total, verdictsOf(counted)], [0, { TLE: 1 }]);
});

test('a gold answer that nothing can be compared with is a bad task', async (t) => {
  const { registry } = await startGrader(t);
  const task = { handler: 'math', id: 'a', data: { problem: 'What?', answer: '(10^9)!' } };
  await assert.rejects(registry.admit(task), { type: 'InvalidTask', message: /cannot read the gold answer/ });
});
