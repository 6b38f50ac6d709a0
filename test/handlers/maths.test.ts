import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sameMaths } from '../../activities/grading/maths.ts';
import { PythonPools } from '../../activities/grading/python-pools.ts';
import { Unanswerable } from '../../activities/grading/python-worker.ts';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { loadTools } from '../../config/tools.ts';
import { RolloutError } from '../../contracts/failures.ts';

const python = new PythonPools(() => loadTools().python);
after(() => python.close());

/** Gold answer, spellings that are right, near misses that are wrong. */
const JUDGEMENTS: [string, string[], string[]][] = [
  // Reports of other graders' users, each with its kind.
  ['\\frac{1}{2}', ['\\frac{1}{2}', '\\dfrac12', '1/2', '0.5', '.5', '50\\%'], ['\\frac{1}{3}', '2']],
  ['01', ['1'], ['0,1', '0.1', '10']],
  ['1/2004!', ['\\frac{1}{2004!}'], ['1/2006!', '0', '1/2005!']],
  ['10^{-20}', ['1e-20', '\\frac{1}{10^{20}}'], ['10^{-21}', '0', '-10^{-20}']],
  ['2021', ['2021', '+2021'], ['\\pm 2021', '±2021', '-2021']],
  ['\\pm 2021', ['±2021', '-2021, 2021'], ['2021', '-2021']],
  ['28\\%', ['28 percent', '28%', '28\\%', '0.28'], ['29 percent', '2.8%']],
  ['73', ['**73**', '**73**.', '$73$', '73.0'], ['**37**', '7.3']],
  ['10080', ['10,\\!080', '10,080', '10{,}080', '10 080'], ['10.080', '1080', '10,800']],
  [
    '1000000',
    ['1\\,000\\,000', '1\u202f000\u202f000', '１,０００,０００', '1 million', '1\\text{ million}'],
    ['1'],
  ],
  ['101_2', ['101_{2}', '101'], ['101_3', '101_{10}', '5']],
  ['101', ['101_{10}'], ['101_2']],
  ['864', ['864 \\mbox{ inches}^2', '864 \\text{ in}^2', '864 inches'], ['864^2', '865 \\mbox{ inches}^2']],
  ['x \\in [-2,7]', ['x \\in [-2,7]', '[-2,7]', '-2 \\le x \\le 7'], ['(-2,7)', '[-2,7)', 'x \\in [-2,8]']],
  // What else stands in answers.
  [
    '1080',
    ['$1,080', '\\$1080', '1080 dollars', '1080.', '\\text{1080}', '2160/2'],
    ['1081', '-1080', '1,08'],
  ],
  ['1/3', ['0.333333', '\\frac13', '2/6'], ['0.33', '0.3', '3']],
  ['3.5', ['3\\frac{1}{2}', '3 1/2', '3½', '7/2'], ['31/2', '3.05']],
  ['2\\sqrt{2}', ['\\sqrt{8}', '2sqrt(2)', '2\\sqrt2', '2√2', '√(8)'], ['\\sqrt{2}', '2.83']],
  ['x^2+1', ['1 + x^2', 'x²+1'], ['x^2-1', 'y^2+1']],
  ['x=5', ['5', 'x = 5'], ['y = 5', '6']],
  ['\\text{Evelyn}', ['Evelyn', '\\textbf{Evelyn}'], ['Eve', 'Nyleve']],
  ['\\{1, 2\\}', ['1, 2', '2, 1'], ['1', '1, 2, 3']],
  [
    '42',
    [
      ...[
        '6 \\times 7',
        '6·7',
        '42 apples',
        '\\approx 42',
        '≈ 42',
        '42°',
        '€42',
        '\\text{\\$}42',
        '42~\\text{m}',
      ],
      ...[
        '{\\bf 42}',
        '\\boldsymbol{42}',
        '\\textcolor{red}{42}',
        '\\large 42',
        '42 \\checkmark',
        '42,',
        '42\\\\',
      ],
    ],
    [
      ...['42 thousand', '42\\text{ million}', '42_5'],
      ...['41, 42', '42 or 43', '12 apples and 42 pears', '', '\\boxed{', '1/0', '0/0', '\\infty'],
      // Of a policy that does not know.
      ...[
        '43$ $42',
        '$42$ or $43$',
        '42 \\pm 1',
        '[40, 44]',
        'x',
        'x > 0',
        '\\mathbb{R}',
        '\\neq 42',
        '42; 43',
        '42 43',
      ],
      ...['x = 42 \\lor x = 43', 'a = 42, b = 43', '42 \\\\ 43', '\\{41, 42\\}', '42.0000001', 'f(x)'],
    ],
  ],
];

test('Math-Verify judges as a careful person does', async () => {
  const judged = JUDGEMENTS.flatMap(([gold, right, wrong]) => [
    ...right.map(async (given) => ({
      gold,
      given,
      want: true,
      got: await sameMaths(python, { gold, given }),
    })),
    ...wrong.map(async (given) => ({
      gold,
      given,
      want: false,
      got: await sameMaths(python, { gold, given }),
    })),
  ]);
  const wrong = (await Promise.all(judged)).filter(({ want, got }) => want !== got);
  assert.deepEqual(wrong, []);
});

test('what a policy answers is read as mathematics, never run', async () => {
  const given = '__import__("os").kill(__import__("os").getppid(), 9)';
  assert.equal(await sameMaths(python, { gold: '42', given }), false);
  assert.equal(
    await sameMaths(python, { gold: '42', given: '1'.repeat(100_000) }),
    false,
    'too long to be one',
  );
});

test('an answer that cannot be computed is a wrong one, and holds up no other', async () => {
  const hanging = sameMaths(python, { gold: '42', given: '(10^9)!' });
  let over = false;
  void hanging.then(() => {
    over = true;
  });
  for (const given of ['42', '43', '42']) {
    assert.equal(await sameMaths(python, { gold: '42', given }), given === '42');
  }
  assert.equal(over, false, 'the others did not wait for it');
  assert.equal(await hanging, 'uncomputable');
  assert.equal(await sameMaths(python, { gold: '42', given: '42' }), true);
});

test('what fails for want of a worker, or of the gold answer, is no wrong answer', async () => {
  const asked: unknown[] = [];
  const failing = (error: (request: { given: string }) => Error) => ({
    ask: async (_: URL, request: object) => {
      asked.push((request as { given: string }).given);
      throw error(request as { given: string });
    },
  });
  const killed = failing(() => new RolloutError('GraderFailed', 'it ended by SIGKILL'));
  await assert.rejects(sameMaths(killed, { gold: '42', given: '6' }), { type: 'GraderFailed' });
  const gold = failing(() => new Unanswerable('its time was over'));
  await assert.rejects(sameMaths(gold, { gold: '42', given: '6' }), { type: 'GraderFailed' });
  assert.deepEqual(asked, ['6', '6', '1'], 'an answer that takes no time fails as well');
});

test('a gold answer that cannot be read is a bad task, and never a reward', async () => {
  const registry = new HandlerRegistry(undefined, python);
  for (const answer of ['\\frac{1}{', '?', '}{']) {
    const task = { handler: 'math', id: 'a', data: { problem: 'What?', answer } };
    await assert.rejects(registry.admit(task), {
      type: 'InvalidTask',
      message: `task a: answer: Math-Verify cannot read the gold answer "${answer}"`,
    });
    await assert.rejects(sameMaths(python, { gold: answer, given: answer }), { type: 'GraderFailed' });
  }
  await registry.admit({ handler: 'math', id: 'a', data: { problem: 'Who?', answer: 'Evelyn' } });
});
