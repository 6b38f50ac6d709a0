import { bash } from '../../tools/bash.ts';
import { finish } from '../../tools/finish.ts';
import { type AgentHandler, defineHandler } from '../handler.ts';
import { loadPrompt } from '../prompt-file.ts';
import { judgeFunctions } from './functions.ts';
import { CodeTask, problemOf } from './layouts.ts';
import { judgeProgram } from './stdio.ts';
import { Submission, submissionIn } from './submission.ts';
import { rewardOf } from './verdict.ts';

const EXAMPLE = {
  question: 'Read two whole numbers and print their sum.',
  input_output: '{"inputs": ["1 2\\n"], "outputs": ["3\\n"]}',
};

/** Characters of a program: judges take 64 kB. */
const MOST_CODE = 65_536;

function codeHandler(name: string, by: 'pass' | 'fraction', reward: string): AgentHandler<CodeTask> {
  return defineHandler<CodeTask>({
    name,
    description: `Programming problems (HumanEval, MBPP, LiveCodeBench, APPS, TACO, CodeContests, Codeforces), ${reward}.`,
    schema: CodeTask,
    example: EXAMPLE,

    tools: () => [bash, finish],

    prompt: (task) => {
      const { kind, statement, starter } = problemOf(task);
      const fences = kind === 'function' ? '```python' : '```python or ```cpp';
      const problem =
        starter === undefined || statement.includes(starter)
          ? statement
          : `${statement}\n\nBegin with:\n\n\`\`\`\n${starter}\n\`\`\``;
      return loadPrompt(new URL('./prompt.md', import.meta.url), { problem, fences });
    },

    outcome: async ({ answer }) => {
      const submission = submissionIn(answer ?? '');
      return submission.code.length > MOST_CODE ? { tooLong: submission.code.length } : { ...submission };
    },

    evaluate: async ({ task, outcome, each }) => {
      const problem = problemOf(task);
      const early = by === 'pass';
      const submission = Submission.safeParse(outcome).data;
      const verdicts = !submission
        ? ['CE' as const]
        : problem.kind === 'stdio'
          ? await judgeProgram(problem, submission, { each }, early)
          : await judgeFunctions(problem, submission.code, { each }, early);
      const tests =
        problem.kind === 'stdio' ? problem.tests : 'cases' in problem.tests ? problem.tests.cases : [0];
      return rewardOf(verdicts, tests.length, by);
    },
  });
}

/** Reward 1 if all tests pass, else 0; no test is run after the first that does not. */
export const code = codeHandler('code', 'pass', 'reward 1 if all tests pass');
/** Reward is the share of the tests that pass. */
export const codeFraction = codeHandler(
  'code-fraction',
  'fraction',
  'the reward is the share of tests that pass',
);
