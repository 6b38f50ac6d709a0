import { bash, defineHandler, loadPrompt, z } from 'durable-rollouts/handler';

/** One task: a line of the tasks file. A malformed one is refused with the name of its field. */
const Task = z.object({
  question: z.string().min(1),
  answer: z.string().min(1),
});

export default defineHandler<z.infer<typeof Task>>({
  name: '__NAME__',
  description: 'What the agent has to do, in a sentence.',
  schema: Task,
  example: { question: 'How many lines does `seq 3 14` print?', answer: '12' },

  tools: () => [bash],

  // The opening messages; nothing of the answer is in them.
  prompt: (task) => loadPrompt(new URL('./prompt.md', import.meta.url), { question: task.question }),

  // `outcome.answer` is what the agent said last. Throw only if grading itself fails: that is never a reward.
  evaluate: async ({ task, outcome }) => {
    const lines = String(outcome.answer ?? '')
      .trim()
      .split('\n');
    const correct = lines.at(-1)?.trim() === task.answer ? 1 : 0;
    return { total: correct, parts: { correct } };
  },
});
