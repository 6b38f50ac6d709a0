import { z } from 'zod';
import { RolloutError } from '../../../contracts/failures.ts';
import { readMaths, sameMaths } from '../../grading/maths.ts';
import { bash } from '../../tools/bash.ts';
import { ipython } from '../../tools/ipython.ts';
import { type AgentHandler, defineHandler } from '../handler.ts';
import { loadPrompt } from '../prompt-file.ts';
import { agentsAnswer, statedAnswer } from './answers.ts';

/** So long may answers take that use up their processor time, where many do at once. */
const EVALUATE_SECONDS = 180;

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
      context.addIssue({
        code: 'custom',
        path: [goldField(task)],
        message: 'states no answer (\\boxed{…} or "#### …")',
      });
    }
  });
export type MathTask = z.infer<typeof MathTask>;

const goldField = (task: Pick<MathTask, 'answer'>) => (task.answer === undefined ? 'solution' : 'answer');

/** The gold answer: stated in a worked answer (`#### N`, \boxed), or the whole of a short one. */
function goldOf(task: Pick<MathTask, 'answer' | 'solution'>): string | undefined {
  if (task.answer !== undefined) {
    return statedAnswer(task.answer) ?? (/\n/.test(task.answer.trim()) ? undefined : task.answer.trim());
  }
  return statedAnswer(task.solution ?? '');
}

const problemOf = (task: MathTask) => task.question ?? task.problem ?? '';

/** Reward 1 for an answer that Math-Verify takes for the gold one, else 0. */
function mathHandler(
  own: Pick<AgentHandler<MathTask>, 'name' | 'description' | 'tools' | 'sandbox'> & { prompt: URL },
) {
  const { prompt, ...rest } = own;
  return defineHandler<MathTask>({
    ...rest,
    schema: MathTask,
    example: { question: 'Tom has 3 boxes of 12 pens. How many pens has he?', answer: '3*12 = 36\n#### 36' },

    deadlines: () => ({ evaluateSeconds: EVALUATE_SECONDS }),
    prompt: (task) => loadPrompt(prompt, { question: problemOf(task) }),

    check: async ({ task, python, signal }) => {
      const gold = goldOf(task) ?? '';
      if ((await readMaths(python, gold, signal)) !== null) return;
      throw new RolloutError(
        'InvalidTask',
        `${goldField(task)}: Math-Verify cannot read the gold answer "${gold}"`,
      );
    },

    outcome: async ({ task, said, messages }) => {
      const asked = messages.filter(({ role }) => role === 'system' || role === 'user');
      const texts = [problemOf(task), ...asked.map(({ content }) => content)];
      return { answer: agentsAnswer(said, texts) ?? null };
    },

    evaluate: async ({ task, outcome, python, signal }) => {
      const gold = goldOf(task);
      if (gold === undefined) throw new RolloutError('InvalidTask', 'the task states no gold answer');
      const given = outcome.answer;
      const same = typeof given === 'string' && (await sameMaths(python, { gold, given }, signal));
      const correct = same === true ? 1 : 0;
      return { total: correct, parts: { correct, ...(same === 'uncomputable' && { uncomputable: 1 }) } };
    },
  });
}

/** Maths problems with a shell and an IPython session that has SymPy. */
export const math = mathHandler({
  name: 'math',
  description:
    'Maths problems (GSM8K, MATH, AMC and AIME layouts) with bash and ipython, answered in \\boxed{}.',
  prompt: new URL('./prompt.md', import.meta.url),
  tools: () => [bash, ipython],
});

/** Maths problems by reasoning alone: no tools, no sandbox. */
export const mathPlain = mathHandler({
  name: 'math-plain',
  description: 'The same problems without tools and without a sandbox.',
  prompt: new URL('./plain.md', import.meta.url),
  tools: () => [],
  sandbox: () => null,
});
