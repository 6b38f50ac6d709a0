import { bash, defineHandler, loadPrompt, z } from 'durable-rollouts/handler';

const SumTask = z.object({
  /** The two numbers that are to be added. */
  a: z.int().nonnegative(),
  b: z.int().nonnegative(),
});

/** Tool results in the prompt's worked examples. */
const SHOWN = 2;

/** A sum in two turns: the shell computes it (0.3), the answer says it in its tag (0.7). */
export default defineHandler<z.infer<typeof SumTask>>({
  name: 'sum-by-tool',
  description: 'Add two numbers with the shell, then say the sum as <answer>N</answer>.',
  schema: SumTask,
  example: { a: 74, b: 99 },

  tools: () => [bash],

  prompt: (task) =>
    loadPrompt(new URL('./handler.md', import.meta.url), { a: String(task.a), b: String(task.b) }),

  outcome: async ({ messages, answer }) => ({
    shell: messages
      .filter(({ role }) => role === 'tool')
      .slice(SHOWN)
      .map(({ content }) => content),
    answer,
  }),

  evaluate: async ({ task, outcome }) => {
    const sum = String(task.a + task.b);
    const shell = outcome.shell as string[];
    // A number that the shell was merely told to print would be right as well: what counts is the trained format.
    const call = shell.some((text) => text.trim() === sum) ? 0.3 : 0;
    const answer = String(outcome.answer ?? '').trim() === `<answer>${sum}</answer>` ? 0.7 : 0;
    return { total: call + answer, parts: { call, answer } };
  },
});
