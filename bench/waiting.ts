import { z } from 'zod';
import { bash, defineHandler } from '../activities/handlers/kit.ts';

/** Tasks with nothing to do but to wait for the model: what is measured is everything around it. */
export default defineHandler({
  name: 'waiting',
  description: 'Do what the recorded policy says.',
  schema: z.looseObject({ name: z.string() }),
  example: { name: 't00', kind: 'usual', turns: 3 },
  tools: () => [bash],
  prompt: async (task) => [{ role: 'user', content: `Task ${JSON.stringify(task)}` }],
  outcome: async () => ({}),
  evaluate: async () => ({ total: 1, parts: {} }),
});
