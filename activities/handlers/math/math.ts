import { z } from 'zod';
import { RolloutError } from '../../../contracts/failures.ts';
import { bash } from '../../tools/bash.ts';
import { defineHandler } from '../handler.ts';
import { loadPrompt } from '../prompt-file.ts';
import { sameAnswer, statedAnswer } from './answers.ts';

const GoldText = z.union([z.string().min(1), z.number()]).transform(String);

/**
 * A maths problem under the field names of the data sets that people have: GSM8K's question and answer
 * (ending in `#### N`), MATH's problem and solution (with a \boxed answer), AMC's and AIME's problem and
 * answer (a number).
 */
export const MathTask = z
  .object({
    question: z.string().min(1).optional(),
    problem: z.string().min(1).optional(),
    answer: GoldText.optional(),
    solution: z.string().min(1).optional(),
  })
  .superRefine((task, context) => {
    if (task.question === undefined && task.problem === undefined) {
      context.addIssue({ code: 'custom', path: ['question'], message: 'expected a question or a problem' });
    }
    if (task.answer === undefined && task.solution === undefined) {
      context.addIssue({ code: 'custom', path: ['answer'], message: 'expected an answer or a solution' });
    } else if (goldOf(task) === undefined) {
      const path = [task.answer === undefined ? 'solution' : 'answer'];
      context.addIssue({ code: 'custom', path, message: 'states no answer (\\boxed{…} or "#### …")' });
    }
  });
export type MathTask = z.infer<typeof MathTask>;

/** The gold answer: stated in a worked answer (`#### N`, \boxed), or the whole of a short one. */
function goldOf(task: Pick<MathTask, 'answer' | 'solution'>): string | undefined {
  if (task.answer !== undefined) {
    return statedAnswer(task.answer) ?? (/\n/.test(task.answer.trim()) ? undefined : task.answer.trim());
  }
  return statedAnswer(task.solution ?? '');
}

/** Maths problems with a bash tool; reward 1 for the right answer, else 0. */
export const math = defineHandler<MathTask>({
  name: 'math',
  description: 'Maths word problems (GSM8K, MATH, AMC and AIME layouts), answered in \\boxed{}.',
  schema: MathTask,
  example: { question: 'Tom has 3 boxes of 12 pens. How many pens has he?', answer: '3*12 = 36\n#### 36' },

  tools: () => [bash],

  prompt: (task) =>
    loadPrompt(new URL('./prompt.md', import.meta.url), { question: task.question ?? task.problem ?? '' }),

  outcome: async ({ messages }) => {
    const said = messages.filter((message) => message.role === 'assistant').at(-1)?.content ?? '';
    return { answer: statedAnswer(said) ?? null };
  },

  evaluate: async ({ task, outcome }) => {
    const gold = goldOf(task);
    if (gold === undefined) throw new RolloutError('InvalidTask', 'the task states no gold answer');
    const given = outcome.answer;
    const correct = typeof given === 'string' && sameAnswer(given, gold) ? 1 : 0;
    return { total: correct, parts: { correct } };
  },
});
