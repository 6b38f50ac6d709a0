import { z } from 'zod';
import { bash, defineHandler } from '../activities/handlers/kit.ts';

/** Tasks with nothing to do but to wait for the model: what is measured is everything around it. */
export default defineHandler({
  name: 'waiting',
  description: 'Do what the recorded policy says.',
  schema: z.looseObject({ name: z.string(), sandbox: z.boolean().optional() }),
  example: { name: 't00', kind: 'usual', turns: 3 },
  tools: (task) => (task.sandbox === false ? [] : [bash]),
  prompt: async (task) => [{ role: 'user', content: `Task ${JSON.stringify(task)}` }],
  // Without one, the task has only its ledger on the host.
  sandbox: (task) => (task.sandbox === false ? null : {}),
  outcome: async () => ({}),
  evaluate: async () => ({ total: 1, parts: {} }),
});
