import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { asLatex } from '../../activities/grading/latex.ts';
import { agentsAnswer, statedAnswer } from '../../activities/handlers/math/answers.ts';

test('the answer is the last \\boxed{}, else the last ####, else what "answer is" says', () => {
  const cases: [string, string | undefined][] = [
    ['so \\boxed{12}', '12'],
    ['first \\boxed{1}, no: \\boxed{2}', '2'],
    ['\\boxed{\\frac{1}{2}}', '\\frac{1}{2}'],
    ['\\boxed{\\{1, 2\\}}', '\\{1, 2\\}'],
    ['\\boxed {8}', '8'],
    ['\\boxed{7} and \\boxed{8', '7'],
    ['\\boxed{7}, in the form \\boxed{}', '7'],
    ['3*12 = 36\n#### 36', '36'],
    ['#### 5 \\boxed{6}', '6'],
    ['The answer is 42.\nGood.', '42'],
    ['The final answer is 3.5 because 7/2 is.', '3.5'],
    ['The final answer is $\\frac{1}{2}$. I hope it is correct.', '$\\frac{1}{2}$'],
    ['**Final answer:** **73**', '**73**'],
    ['The answer is 5, not 6.', '5'],
    ['The answer is not 5.', 'not 5'],
    ['Answer: 1,080 dollars', '1,080 dollars'],
    ['The answer is:\n\nC', 'C'],
    ['**Answer:**\r\n42\r\nIndeed.', '42'],
    ['The final answer is:\n\\[\n42\n\\]', '42'],
    ['The final answer is: $$42$$', '$$42$$'],
    ['Answer:\n1. First we add\n2. Then', undefined],
    [`The answer is 5. As an answer:\n${'it is so '.repeat(9)}`, '5'],
    ['The answer is:', undefined],
    ['The answer isn’t 5, but is it an answer: **', undefined],
    ['there are 12 of them', undefined],
    ['\\boxed{}', undefined],
    ['', undefined],
  ];
  for (const [text, answer] of cases) assert.equal(statedAnswer(text), answer, text);
});

test('a \\boxed{} of the prompt is not the agent’s answer, nor is a number that merely stands last', () => {
  const problem = 'Find x so that \\boxed{5} is twice x.';
  const prompt = ['Give the result as \\boxed{number}.', problem];
  for (const [said, answer] of [
    [[`${problem} I do not know, and nobody who has read this far can know it.`], undefined],
    [[`${problem}\nThe answer is 2.5`], '2.5'],
    [['\\boxed{2.5}', `As asked: Give the result as \\boxed{number}.`], '2.5'],
    [['\\boxed{3}', 'Let me check.', 'Yes.'], '3'],
    [['\\boxed{3}', 'No: \\boxed{4}', 'Done.'], '4'],
    [['2.5'], '2.5'],
    [['there were 12 and I took 3, which leaves, as far as anybody can tell, 9'], undefined],
    [['a\n9'], undefined],
    [[], undefined],
  ] as const) {
    assert.equal(agentsAnswer(said, prompt), answer, said.join(' / '));
  }
});

test('an answer as people write it becomes LaTeX that means the same', () => {
  for (const [written, latex] of [
    ['**73**.', '73'],
    ['$\\frac{1}{2}$', '\\frac{1}{2}'],
    ['18 eggs', '18 \\text{ eggs}'],
    ['60 km/h', '60 \\text{ km/h}'],
    ['28 percent', '28 percent'],
    ['3 1/2', '3\\frac{1}{2}'],
    ['1 000 000', '1000000'],
    ['x⁻¹²', 'x^{-12}'],
    ['sqrt(2)', '\\sqrt{2}'],
    ['2pi', '2\\pi'],
    ['Evelyn', '\\text{Evelyn}'],
    ['12 apples and 3 pears', '12 apples and 3 pears'],
    ['2x + 3y', '2x + 3y'],
    ['1 and 2', '1 and 2'],
    ['x \\in [-2,7]', 'x \\in [-2,7]'],
  ] as const) {
    assert.equal(asLatex(written), latex);
  }
});

test('reading an answer never throws', () => {
  fc.assert(
    fc.property(
      fc.string({
        unit: fc.constantFrom(
          '\\',
          'boxed',
          '{',
          '}',
          '#',
          '1',
          '/',
          '.',
          ' ',
          'answer is',
          '\n',
          '$',
          'sqrt(',
        ),
      }),
      (text) => {
        const answer = statedAnswer(text);
        if (answer !== undefined) asLatex(answer);
      },
    ),
  );
});
