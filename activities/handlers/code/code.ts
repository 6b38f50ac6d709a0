import { LANES } from '../../sandbox/for-grader.ts';
import { bash } from '../../tools/bash.ts';
import { finish } from '../../tools/finish.ts';
import { type AgentHandler, defineHandler } from '../handler.ts';
import { loadPrompt } from '../prompt-file.ts';
import { judgeFunctions } from './functions.ts';
import { CodeTask, problemOf } from './layouts.ts';
import { limitsOf } from './limits.ts';
import type { Problem } from './problem.ts';
import { judgeProgram } from './stdio.ts';
import { Submission, submissionIn } from './submission.ts';
import { rewardOf } from './verdict.ts';

const EXAMPLE = {
  question: 'Read two whole numbers and print their sum.',
  input_output: '{"inputs": ["1 2\\n"], "outputs": ["3\\n"]}',
};

/** Of a grade: to wait for sandboxes, to compile, and for what runs the tests of functions. */
const OTHERWISE_SECONDS = 240;
const MOST_SECONDS = 86_400;
/** Characters of a program: judges take 64 kB. */
const MOST_CODE = 65_536;

function codeHandler(name: string, by: 'pass' | 'fraction', reward: string): AgentHandler<CodeTask> {
  return defineHandler<CodeTask>({
    name,
    description: `Programming problems (HumanEval, MBPP, LiveCodeBench, APPS, TACO, CodeContests, Codeforces), ${reward}.`,
    schema: CodeTask,
    example: EXAMPLE,

    deadlines: (task) => ({ evaluateSeconds: secondsToJudge(problemOf(task)) }),
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
      return rewardOf(verdicts, testsOf(problem), by);
    },
  });
}

/** A problem whose tests are one source has one. */
function testsOf(problem: Problem): number {
  if (problem.kind === 'stdio') return problem.tests.length;
  return 'cases' in problem.tests ? problem.tests.cases.length : 1;
}

/** Seconds after which even an answer that spends all of its time in every test has been judged. */
function secondsToJudge(problem: Problem): number {
  const { timeoutMs } = limitsOf(problem, 'python', 0);
  const seconds = OTHERWISE_SECONDS + (Math.ceil(testsOf(problem) / LANES) * timeoutMs) / 1000;
  return Math.min(Math.ceil(seconds), MOST_SECONDS);
}

/** Reward 1 if all tests pass, else 0; no test is run after the first that does not. */
export const code = codeHandler('code', 'pass', 'reward 1 if all tests pass');
/** Reward is the share of the tests that pass. */
export const codeFraction = codeHandler(
  'code-fraction',
  'fraction',
  'the reward is the share of tests that pass',
);
