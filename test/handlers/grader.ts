import type { TestContext } from 'node:test';
import { PythonPools } from '../../activities/grading/python-pools.ts';
import { builtIn, HandlerRegistry } from '../../activities/handlers/registry.ts';
import { gradeRecorded } from '../../client/recorded.ts';
import { loadTools } from '../../config/tools.ts';
import type { Reward } from '../../contracts/trajectory.ts';
import { startHost } from '../sandbox/support.ts';

/** Grades recorded answers as `rollouts grade` does, in real sandboxes. */
export async function startGrader(t: Pick<TestContext, 'after'>, evaluateSeconds = 600) {
  const python = new PythonPools(() => loadTools().python);
  t.after(() => python.close());
  const registry = new HandlerRegistry(builtIn(), python);
  const { client } = await startHost(t);
  let grades = 0;
  return {
    registry,
    client,
    grade: (handler: string, data: Record<string, unknown>, response: string): Promise<Reward> =>
      gradeRecorded({ handler, id: 'a', data }, response, {
        registry,
        sandboxes: async () => client,
        id: `grade-${++grades}`,
        deadlines: { evaluateSeconds },
        signal: new AbortController().signal,
      }),
  };
}

export const fenced = (language: string, code: string) =>
  `Here it is:\n\n\`\`\`${language}\n${code}\n\`\`\`\n`;

/** The verdicts that a code reward counts, without those that are 0. */
export function verdictsOf({ parts }: Reward): Record<string, number> {
  const verdicts = ['AC', 'WA', 'TLE', 'MLE', 'RE', 'CE'];
  return Object.fromEntries(
    Object.entries(parts).filter(([name, count]) => verdicts.includes(name) && count > 0),
  );
}
