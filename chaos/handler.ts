import { setTimeout as delay } from 'node:timers/promises';
import { bash, defineHandler, finish } from '../activities/handlers/kit.ts';
import { SandboxLimits } from '../contracts/sandbox.ts';
import { ChaosTask } from './tasks.ts';

const MIB = 1024 ** 2;
/** Milliseconds that init and evaluate take: long enough to be killed in. */
const MOMENT_MS = 1500;

/** Tasks whose every tool call leaves a line in a file: one that ran twice shows in the grade and in the tokens. */
export default defineHandler<ChaosTask>({
  name: 'chaos',
  description: 'Call the shell as recorded; the file "calls" has a line of each call.',
  schema: ChaosTask,
  example: { name: 't00', kind: 'usual', turns: 6 },
  sandbox: () => ({ limits: SandboxLimits.parse({ memoryBytes: 96 * MIB }) }),
  tools: () => [bash, finish],
  prompt: async (task) => [{ role: 'user', content: `Task ${JSON.stringify(task)}` }],

  init: async ({ sandbox }) => {
    await sandbox.writeFile(`${sandbox.workspace}/calls`, '');
    await delay(MOMENT_MS);
  },

  outcome: async ({ sandbox, answer }) => {
    const calls = (await sandbox.readFile(`${sandbox.workspace}/calls`)).toString().trimEnd().split('\n');
    return { answer, calls };
  },

  evaluate: async ({ task, outcome, messages }) => {
    await delay(MOMENT_MS);
    if (task.kind === 'graderCrash') throw new Error('this grader always crashes');
    const asked = messages.flatMap(({ role, content }) =>
      role === 'assistant'
        ? [...content.matchAll(/^echo (\S+ \S+) >> calls$/gm)].map((match) => match[1])
        : [],
    );
    const ran = outcome.calls as string[];
    const once = asked.filter((line) => ran.filter((other) => other === line).length === 1).length;
    return { total: once / asked.length, parts: { asked: asked.length, ran: ran.length, once } };
  },
});
