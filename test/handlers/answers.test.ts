import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { sameAnswer, statedAnswer } from '../../activities/handlers/math/answers.ts';

test('the answer is the last \\boxed{}, else the last ####, else what "answer is" says', () => {
  const cases: [string, string | undefined][] = [
    ['so \\boxed{12}', '12'],
    ['first \\boxed{1}, no: \\boxed{2}', '2'],
    ['\\boxed{\\frac{1}{2}}', '\\frac{1}{2}'],
    ['\\boxed{7} and \\boxed{8', '7'],
    ['3*12 = 36\n#### 36', '36'],
    ['#### 5 \\boxed{6}', '6'],
    ['The answer is 42.\nGood.', '42.'],
    ['Answer: 3', '3'],
    ['there are 12 of them', undefined],
    ['\\boxed{}', undefined],
    ['', undefined],
  ];
  for (const [text, answer] of cases) assert.equal(statedAnswer(text), answer, text);
});

test('spellings of one number are the same answer', () => {
  for (const spelling of [
    '1080',
    '1,080',
    '$1,080',
    '1080.',
    '1080.0',
    '10\\,80',
    '\\$1080',
    '1080 dollars',
    '**1080**',
    '2160/2',
    '+1080',
    '$1080$',
    '\\text{1080}',
  ]) {
    assert.ok(sameAnswer(spelling, '1080'), spelling);
  }
  for (const spelling of ['0.5', '.5', '1/2', '\\frac{1}{2}', '\\dfrac{2}{4}', '50%', '50\\%']) {
    assert.ok(sameAnswer(spelling, '0.5'), spelling);
  }
});

test('near misses are not', () => {
  for (const [given, gold] of [
    ['1081', '1080'],
    ['-1080', '1080'],
    ['1,08', '108'],
    ['0,1', '01'],
    ['\\frac{1}{2}', '\\frac{1}{3}'],
    ['0.333333', '1/3'],
    ['28', '28%'],
    ['2x', '2'],
    ['2 x', '2'],
    ['', '0'],
    ['x', 'y'],
    ['1/0', '0'],
  ] as const) {
    assert.equal(sameAnswer(given, gold), false, `${given} / ${gold}`);
  }
});

test('any integer equals itself however it is written, and no other', () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), fc.maxSafeInteger(), (a, b) => {
      assert.ok(sameAnswer(a.toLocaleString('en-US'), String(a)));
      assert.equal(sameAnswer(String(a), String(b)), a === b);
    }),
  );
});

test('reading an answer never throws', () => {
  fc.assert(
    fc.property(
      fc.string({
        unit: fc.constantFrom('\\', 'boxed', '{', '}', '#', '1', '/', '.', ' ', 'answer is', '\n'),
      }),
      (text) => {
        const answer = statedAnswer(text);
        if (answer !== undefined) sameAnswer(answer, text);
      },
    ),
  );
});
