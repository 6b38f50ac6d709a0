import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rewardOf } from 'durable-rollouts/handler';
import handler from './handler.ts';

test('the right answer has reward 1, another 0', async () => {
  assert.equal((await rewardOf(handler, handler.example, `I looked.\n${handler.example.answer}`)).total, 1);
  assert.equal((await rewardOf(handler, handler.example, 'I do not know.')).total, 0);
});

test('the prompt asks the question and does not hold the answer', async () => {
  const task = handler.schema.parse({ question: 'What?', answer: 'a secret' });
  const said = ((await handler.prompt?.(task)) ?? []).map(({ content }) => content).join('\n');
  assert.ok(said.includes('What?') && !said.includes('a secret'));
});
