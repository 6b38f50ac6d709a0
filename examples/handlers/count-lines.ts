import { bash, defineHandler, loadPrompt, z } from 'durable-rollouts/handler';

const CountLinesTask = z.object({
  /** Text of the file that the agent finds in its workspace. */
  text: z.string().min(1),
});

/** A whole task type in one file: the agent counts the lines of a file with its shell. */
export default defineHandler<z.infer<typeof CountLinesTask>>({
  name: 'count-lines',
  description: 'Count the lines of notes.txt in the workspace.',
  schema: CountLinesTask,
  example: { text: 'one\ntwo\n' },

  tools: () => [bash],

  prompt: () => loadPrompt(new URL('./count-lines.md', import.meta.url), {}),

  init: async ({ task, sandbox }) => {
    await sandbox.writeFile(`${sandbox.workspace}/notes.txt`, task.text);
  },

  evaluate: async ({ task, outcome }) => {
    const lines = task.text.split('\n').length - 1;
    const said = String(outcome.answer ?? '').match(/\d+/g) ?? [];
    const correct = Number(said.at(-1)) === lines ? 1 : 0;
    return { total: correct, parts: { correct } };
  },
});
