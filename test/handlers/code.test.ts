import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { asLatex } from '../../activities/grading/latex.ts';
import { quantityIn } from '../../activities/grading/quantities.ts';
import { sameOutput } from '../../activities/handlers/code/compare.ts';
import { CodeTask, problemOf } from '../../activities/handlers/code/layouts.ts';
import { limitsOf } from '../../activities/handlers/code/limits.ts';
import { submissionIn } from '../../activities/handlers/code/submission.ts';
import { statedAnswer } from '../../activities/handlers/math/answers.ts';

const PACKED = 'eJxrYJ2qwQABPaoRsGb2VUwAAQ=='; // no pickle of a text

test('output is compared by words, decimals to 10⁻⁶, whole numbers exactly', () => {
  for (const [given, expected, same] of [
    ['3\n', '3', true],
    ['1 2\n3', '1 2 3\n', true],
    ['0.333333', '0.333333333333', true],
    ['0.33333', '0.333333333333', false],
    ['1000000.5', '1000000.0', true],
    ['1000002', '1000000.0', false],
    ['2', '2.000', true],
    ['1000001', '1000000', false],
    ['1000001 0.5', '1000000 0.5', false],
    ['3.0 .5', '3 0.5', true],
    ['1.0', '1', false],
    ['1e0', '1', false],
    ['yes', 'YES', false],
    ['nan', 'nan', true],
    ['nan', '0.5', false],
    ['0x10', '16.0', false],
    ['٥.0', '5.0', false],
    ['6\b5', '5', false],
    ['', '0', false],
    ['1 2', '1', false],
    ['Infinity', '1e999', false],
  ] as const) {
    assert.equal(sameOutput(given, expected), same, `${given} / ${expected}`);
  }
  fc.assert(fc.property(fc.string(), (text) => assert.ok(sameOutput(text, text))));
});

test('the program is the last block in a language, else the last block, else the reply', () => {
  const fence = (language: string, code: string) => `\`\`\`${language}\n${code}\n\`\`\``;
  for (const [reply, language, code] of [
    [`First ${fence('python', 'x = 1')}`, 'python', undefined],
    [
      `First:\n${fence('python', 'x = 1')}\nBetter:\n${fence('py', 'x = 2')}\nRun:\n${fence('bash', 'ls')}`,
      'python',
      'x = 2\n',
    ],
    [`${fence('C++', 'int main() {}')}`, 'cpp', 'int main() {}\n'],
    [`${fence('', '#include <cstdio>')}`, 'cpp', '#include <cstdio>\n'],
    ['print(1)', 'python', 'print(1)'],
    [`\`\`\`python\r\nprint(1)\r\n\`\`\``, 'python', 'print(1)\n'],
    ['', 'python', ''],
  ] as const) {
    const found = submissionIn(reply);
    assert.equal(found.language, language, reply);
    if (code !== undefined) assert.equal(found.code, code);
  }
});

test('a long and hostile reply is read in one pass', () => {
  // A reader that goes back over it would take hours.
  assert.equal(submissionIn('```a\n'.repeat(200_000)).code.length, 1_000_000);
  assert.equal(statedAnswer('\\boxed{'.repeat(10_000)), undefined);
  asLatex(`5 ${'a'.repeat(1900)}!`);
  quantityIn(`5 ${'m'.repeat(1900)}!`);
});

test('rows of every layout are read as they are; a bad one is named by its field', () => {
  const tests = { input: ['1\n'], output: ['2\n'] };
  const liveTests = (testtype: string) => JSON.stringify([{ input: '1', output: '2', testtype }]);
  for (const row of [
    {
      task_id: 'HumanEval/0',
      prompt: 'def f():\n',
      entry_point: 'f',
      test: 'def check(c): pass',
      canonical_solution: '',
    },
    { task_id: 2, text: 'Write f.', code: '', test_list: ['assert f() == 1'], test_setup_code: '' },
    {
      question_content: 'Q',
      public_test_cases: liveTests('stdin'),
      private_test_cases: liveTests('stdin'),
      metadata: '{}',
    },
    { question_content: 'Q', public_test_cases: liveTests('functional'), metadata: '{"func_name": "f"}' },
    { problem_id: 0, question: 'Q', input_output: '{"inputs": ["1"], "outputs": ["2"]}', starter_code: '' },
    {
      question: 'Q',
      input_output: '{"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}',
      time_limit: '2 seconds',
    },
    {
      description: 'Q',
      public_tests: tests,
      private_tests: tests,
      time_limit: { seconds: 2, nanos: 500_000_000 },
    },
    { description: 'Q', official_tests: [{ input: '1', output: '2' }], time_limit: 2, memory_limit: 256 },
  ]) {
    assert.ok(problemOf(CodeTask.parse(row)).statement.length > 0);
  }
  const contest = problemOf({
    description: 'Q',
    public_tests: tests,
    time_limit: { seconds: 2, nanos: 500_000_000 },
  });
  assert.deepEqual([contest.seconds, contest.memoryBytes], [2.5, 512 * 1024 ** 2]);
  // A program that sleeps is not let sleep for the 90 s that one which works may take.
  const slow = problemOf({ description: 'Q', public_tests: tests, time_limit: { seconds: 9, nanos: 0 } });
  assert.deepEqual(
    [contest, slow].map((one) => limitsOf(one, 'python', 1).spec.limits?.idleSeconds),
    [5, 9],
  );
  const taco = {
    question: 'Q',
    input_output: '{"inputs": ["1"], "outputs": ["2"]}',
    time_limit: '2.0 seconds',
    memory_limit: '256 megabytes',
  };
  assert.deepEqual([problemOf(taco).seconds, problemOf(taco).memoryBytes], [2, 256 * 1024 ** 2]);

  for (const [row, problem] of [
    [{ question: 'Q' }, /: is of no known layout: expected one of the fields entry_point \(HumanEval\)/],
    [{ entry_point: 'f', prompt: 'p' }, /^test: /],
    [{ question: 'Q', input_output: 'no json' }, /^input_output: is no JSON/],
    [{ question: 'Q', input_output: '{"inputs": ["1"], "outputs": []}' }, /^input_output/],
    [
      { description: 'Q', public_tests: { input: [], output: [] } },
      /^private_tests: expected at least one test/,
    ],
    [{ description: 'Q', public_tests: { input: ['1'], output: [] } }, /^public_tests: has not as many/],
    [{ description: 'Q', official_tests: [] }, /^official_tests: expected at least one test/],
    [
      { description: 'Q', official_tests: [{ input: '', output: '' }], input_mode: 'file' },
      /^input_mode: only problems/,
    ],
    [{ question_content: 'Q', public_test_cases: liveTests('functional') }, /^metadata.func_name: expected/],
    [
      { question_content: 'Q', public_test_cases: '[]', private_test_cases: PACKED },
      /^private_test_cases: is no JSON/,
    ],
  ] as const) {
    const issue = CodeTask.safeParse(row).error?.issues[0];
    assert.match(`${issue?.path.join('.')}: ${issue?.message}`, problem);
  }
});

test('LiveCodeBench’s packed tests are read, and nothing is unpickled', () => {
  // pickle.dumps of '[{"input": "4", "output": "8", "testtype": "stdin"}]', zlib, base64.
  const row = { question_content: 'Q', public_test_cases: '[]', private_test_cases: PICKLED, metadata: '{}' };
  const problem = problemOf(CodeTask.parse(row));
  assert.ok(problem.kind === 'stdio');
  assert.deepEqual(
    problem.tests.map(({ input, output }) => [input, output]),
    [['4', '8']],
  );
});

const PICKLED = 'eJxrYJlqwQABPSbR1UqZeQWlJUpWCkomSjoKSvmlJVCuBYhbklpcUlJZkAoSKC5JycxTqo2dogcAOykSsw==';
