import { bash, defineHandler } from '../../activities/handlers/kit.ts';
import type { BoundSandbox } from '../../activities/sandbox/bound.ts';
import { StagesTask } from './tasks.ts';

/** Stages that wait for I/O for as long as their task says, in real sandboxes; the agent for the model and its tool. */
export default defineHandler<StagesTask>({
  name: 'stages',
  description: 'Take the time that the task says.',
  schema: StagesTask,
  example: { name: 't0', initMs: 100, turns: [{ llmMs: 100, toolMs: 0 }], evaluateMs: 100 },
  tools: () => [bash],
  prompt: async (task) => [{ role: 'user', content: `Task ${JSON.stringify(task)}` }],
  init: ({ task, sandbox }) => wait(sandbox, task.initMs),
  outcome: async () => ({}),
  evaluate: async ({ task, sandbox }) => {
    await wait(await sandbox(), task.evaluateMs);
    return { total: 1, parts: {} };
  },
});

async function wait(sandbox: BoundSandbox, ms: number): Promise<void> {
  const { exitCode } = await sandbox.exec({ argv: ['sleep', String(ms / 1000)], timeoutMs: ms + 60_000 });
  if (exitCode !== 0) throw new Error(`sleep gave ${exitCode}`);
}
