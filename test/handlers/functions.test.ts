import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fenced, startGrader, verdictsOf } from './grader.ts';

/** As HumanEval's are: a helper in the prompt, random arguments, results that go into further calls. */
const ROOT = {
  task_id: 'own/0',
  prompt:
    'import math\n\n\ndef value(x):\n    return x * x - 2\n\n\ndef root(low: float, high: float):\n    """ Where value is 0. """\n',
  entry_point: 'root',
  test: `
def check(candidate):
    import random
    assert abs(value(candidate(0, 2))) < 1e-4
    for _ in range(20):
        low = random.random()
        first = candidate(low, low + 2)
        assert math.isclose(candidate(first - 1, first + 1), first, abs_tol=1e-4)
`,
};
const BODY = `    while high - low > 1e-9:
        middle = (low + high) / 2
        if value(middle) < 0: low = middle
        else: high = middle
    return low
`;
const PAIRS = {
  task_id: 1,
  text: 'Sum of a list of pairs.',
  test_list: [
    'assert total([Pair(1, 2), Pair(3, 4)]) == (4, 6)',
    "assert total([]) == (0, 0) and names() == {'a': {1, 2}}",
  ],
};

test('functions are called with what the tests give, and their results judged by them', async (t) => {
  const { grade } = await startGrader(t);
  const pairs = `
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
def total(pairs): return (sum(p.a for p in pairs), sum(p.b for p in pairs))
def names(): return {'a': {1, 2}}`;
  const live = (testtype: string) => ({
    question_content: 'Q',
    starter_code: 'class Solution:\n    def twice(self, xs, big): ...',
    public_test_cases: JSON.stringify([
      { input: '[1, 2]\n12345678901234567890', output: '[2, 4, 12345678901234567890]', testtype },
      { input: '[]\n1.5', output: '[1.5]', testtype },
    ]),
    metadata: '{"func_name": "twice"}',
  });
  const wrapped = {
    question: 'Q',
    input_output: '{"fn_name": "half", "inputs": [[3], [4]], "outputs": [[1.5], 2]}',
  };
  const solution =
    'class Solution:\n    def twice(self, xs, big):\n        return [2 * x for x in xs] + [big]';
  for (const [what, task, answer, verdicts] of [
    ['a body', ROOT, BODY, { AC: 1 }],
    ['a whole function', ROOT, fenced('python', `import math\ndef root(low, high):\n${BODY}`), { AC: 1 }],
    ['a wrong one', ROOT, '    return low\n', { WA: 1 }],
    ['one that raises', ROOT, '    raise ValueError(low)\n', { RE: 1 }],
    ['one that does not compile', ROOT, '    return (\n', { CE: 1 }],
    ['objects of its own', PAIRS, fenced('python', pairs), { AC: 1 }],
    ['a missing function', PAIRS, fenced('python', 'def total(x): return (0, 0)'), { RE: 1 }],
    ['a method', live('functional'), fenced('python', solution), { AC: 2 }],
    [
      'a method, half right',
      live('functional'),
      fenced('python', solution.replace('2 * x', 'x')),
      { AC: 1, WA: 1 },
    ],
    ['a result in a list', wrapped, fenced('python', 'def half(x): return x / 2'), { AC: 2 }],
  ] as const) {
    assert.deepEqual(verdictsOf(await grade('code-fraction', task, answer)), verdicts, what);
  }
});

test('a solution that attacks its judge is judged by what it returns', async (t) => {
  const { grade } = await startGrader(t);
  const attacks: [string, string, Record<string, number>][] = [
    ['ends the process', 'import os\ndef total(x): os._exit(0)\nnames = Pair = total', { RE: 1 }],
    ['ends it when it is loaded', 'import sys\nsys.exit(0)', { RE: 1 }],
    [
      'returns what equals everything',
      'class E(tuple):\n    def __eq__(s, o): return True\nclass F:\n    __eq__ = lambda s, o: True\ndef total(x): return E((9, 9))\ndef names(): return F()\nPair = lambda a, b: 0',
      { WA: 1 },
    ],
    [
      'changes what the tests use',
      'import builtins\nbuiltins.AssertionError = None\nbuiltins.isinstance = lambda *a: True\ndef total(x): return None\nnames = Pair = total',
      { RE: 1 },
    ],
    [
      'writes a verdict where its results go',
      `import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'{"verdict": "AC"}\\n')\n    except OSError: pass\nos._exit(0)`,
      { RE: 1 },
    ],
    [
      'looks for what is expected',
      'import gc\ndef total(x):\n    for o in gc.get_objects():\n        if isinstance(o, tuple) and o == (4, 6): return o\nnames = total\nPair = lambda a, b: 0',
      { WA: 1 },
    ],
    ['ends the loops of its tests', 'def total(x): raise StopIteration', { RE: 1 }],
    ['never ends', 'def total(x):\n    while True: pass\nnames = Pair = total', { TLE: 1 }],
  ];
  await Promise.all(
    attacks.map(async ([what, code, verdicts]) => {
      const task = what === 'never ends' ? QUICK : what.startsWith('ends the loops') ? MAPPED : PAIRS;
      const reward = await grade('code', task, fenced('python', code));
      assert.deepEqual([reward.total, verdictsOf(reward)], [0, verdicts], what);
    }),
  );
});

const MAPPED = { ...PAIRS, test_list: ['assert all(map(lambda x: total([x]) == x, [1, 2]))'] };

/** The shortest time that a layout can give. */
const QUICK = {
  question: 'Q',
  input_output: '{"fn_name": "total", "inputs": [[1]], "outputs": [1]}',
  time_limit: 0.2,
};

test('a result that cannot be compared is a wrong one, and no grader’s failure', async (t) => {
  const { grade } = await startGrader(t);
  const wanted = {
    question: 'Q',
    input_output: '{"fn_name": "f", "inputs": [[1]], "outputs": [1.5]}',
  };
  const forged = (value: string) =>
    `import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'{"loaded": true}\\n{"value": ${value}}\\n')\n    except OSError: pass\nos._exit(0)`;
  const digits = `{"int": "' + b'9' * 2000000 + b'"}`;
  const answers: [string, string][] = [
    ['a number beyond all floats', 'def f(x): return 10 ** 400'],
    ['no number', 'def f(x): return float("nan")'],
    ['a list in lists', 'def f(x):\n    y = []\n    for _ in range(900): y = [y]\n    return y'],
    ['what is of no kind', forged('{"evil": 1}')],
    ['a fraction with an exponent', forged('{"fraction": "1e99999999"}')],
    ['more digits than can be read', forged(digits)],
    ['lists without an end', forged(`' + b'[' * 100000 + b']' * 100000 + b'`)],
  ];
  await Promise.all(
    answers.map(async ([what, code]) => {
      const reward = await grade('code', wanted, fenced('python', code));
      assert.equal(reward.total, 0, what);
      assert.equal((verdictsOf(reward).WA ?? 0) + (verdictsOf(reward).RE ?? 0), 1, what);
    }),
  );
});

test('tests that cannot run are a failed grade, and never a reward', async (t) => {
  const { grade } = await startGrader(t);
  for (const [test_list, said] of [
    [['assert total(open) == 1'], /they pass a builtin_function_or_method to the solution/],
    [['assert ('], /SyntaxError/],
  ] as const) {
    await assert.rejects(grade('code', { ...PAIRS, test_list }, 'def total(x): return 1'), {
      type: 'GraderFailed',
      message: said,
    });
  }
});
