import { RolloutError } from '../../../contracts/failures.ts';
import { SandboxLimits } from '../../../contracts/sandbox.ts';
import type { BoundSandbox } from '../../sandbox/bound.ts';
import type { EvaluateContext } from '../handler.ts';
import { sameOutput } from './compare.ts';
import { limitsOf } from './limits.ts';
import type { StdioProblem } from './problem.ts';
import type { Submission } from './submission.ts';
import { type Verdict, verdictOfEnd } from './verdict.ts';

const MB = 1024 ** 2;
/** Bytes of output that can be compared at all. */
const MOST_OUTPUT = 16 * MB;
const [COMPILE_MS, CHECKER_MS] = [120_000, 120_000];
/** Bytes of a compiled program, which goes to each test's sandbox; judges allow no more. */
const MOST_PROGRAM = 32 * MB;
const COMPILE_LIMITS = { memoryBytes: 2048 * MB, cpuSeconds: 60, processes: 64, fileBytes: MOST_PROGRAM };
const COMPILE_ERROR = /^(?:SyntaxError|IndentationError|TabError): /m;
/** What a shell says of a program that is not there. */
const NOT_FOUND = 127;

/** A checker that takes more of the processor has gone astray in what the answer printed. */
const CHECKER_SPEC = { limits: SandboxLimits.parse({ cpuSeconds: 30 }) };

type Sandboxes = Pick<EvaluateContext<unknown>, 'each'>;
type Test = StdioProblem['tests'][number];

/**
 * Verdicts on a program, test by test, each in a fresh sandbox that holds the program and nothing else; the expected
 * output never gets there. `stopEarly`: none after the first that is not AC.
 * @throws RolloutError GraderFailed if a compiler, an interpreter or the checker fails; SandboxFailed
 */
export async function judgeProgram(
  problem: StdioProblem,
  { language, code }: Submission,
  { each }: Sandboxes,
  stopEarly: boolean,
): Promise<Verdict[]> {
  const program = language === 'cpp' ? await compiled(code, each) : Buffer.from(code);
  if (program === undefined) return problem.tests.map(() => 'CE' as const);
  const [file, argv] =
    language === 'cpp'
      ? (['solution', ['./solution']] as const)
      : (['solution.py', ['python3', 'solution.py']] as const);
  const longest = Math.max(...problem.tests.map(({ output }) => Buffer.byteLength(output)));
  const outputBytes = Math.min(MOST_OUTPUT, 2 * longest + MB);
  const { spec, timeoutMs } = limitsOf(problem, language, outputBytes);

  const run = async (sandbox: BoundSandbox, test: Test): Promise<{ verdict?: Verdict; output: string }> => {
    await sandbox.writeFile(`${sandbox.workspace}/${file}`, program, 0o755);
    const stdin = Buffer.from(test.input).toString('base64');
    const end = await sandbox.exec({ argv: [...argv], stdin, timeoutMs, maxOutputBytes: outputBytes });
    if (end.exitCode === NOT_FOUND && /python3/.test(end.stderr.text)) throw missing('python3');
    let verdict = verdictOfEnd(end);
    if (verdict === 'RE' && language === 'python' && COMPILE_ERROR.test(end.stderr.text)) verdict = 'CE';
    return { ...(verdict && { verdict }), output: end.stdout.text };
  };
  const judge = async (sandbox: BoundSandbox, test: Test) => {
    const { verdict, output } = await run(sandbox, test);
    if (verdict || problem.checker !== undefined) return { verdict, test, output };
    return { verdict: sameOutput(output, test.output) ? ('AC' as const) : ('WA' as const), test, output };
  };
  const judged = await each(problem.tests, judge, {
    spec,
    enough: ({ verdict }) => stopEarly && verdict !== undefined && verdict !== 'AC',
  });
  const checker = problem.checker;
  if (checker === undefined) return judged.map(({ verdict }) => verdict as Verdict);
  return each(
    judged,
    async (sandbox, { verdict, test, output }) => verdict ?? (await checked(sandbox, checker, test, output)),
    { spec: CHECKER_SPEC, enough: (verdict) => stopEarly && verdict !== 'AC' },
  );
}

/** The program that C++ compiles to, without a sandbox's standing files; undefined if it does not compile. */
async function compiled(code: string, each: Sandboxes['each']): Promise<Buffer | undefined> {
  const [program] = await each(
    [code],
    async (sandbox, source) => {
      await sandbox.writeFile(`${sandbox.workspace}/solution.cpp`, source);
      const argv = ['g++', '-std=c++17', '-O2', '-pipe', '-o', 'solution', 'solution.cpp'];
      const end = await sandbox.exec({ argv, timeoutMs: COMPILE_MS });
      if (end.exitCode === NOT_FOUND) throw missing('g++');
      if (end.exitCode !== 0) return undefined;
      return sandbox.readFile(`${sandbox.workspace}/solution`, MOST_PROGRAM);
    },
    { spec: { limits: { ...FREE, ...COMPILE_LIMITS } } },
  );
  return program;
}

/** Of a compiler and a checker, which are not the policy's. */
const FREE = {
  diskBytes: 1024 * MB,
  diskFiles: 10_000,
  openFiles: 1024,
  outputBytes: 16 * MB,
};

/**
 * What the problem's own checker says. It is trusted to run, and sees the answer's output only as a file. One that fails
 * at that, and not at the expected output, fails because of the answer.
 */
async function checked(sandbox: BoundSandbox, checker: string, test: Test, given: string): Promise<Verdict> {
  const said = await check(sandbox, checker, test, given);
  if (typeof said === 'number') return said >= 1 ? 'AC' : 'WA';
  const ofExpected = await check(sandbox, checker, test, test.output);
  if (typeof ofExpected === 'number' && !said.timedOut) return 'WA';
  throw new RolloutError('GraderFailed', `the problem's checker: ${said.why}`);
}

/** A number, or why there is none. */
async function check(
  sandbox: BoundSandbox,
  checker: string,
  { input, output: expected }: Test,
  given: string,
): Promise<number | { readonly why: string; readonly timedOut: boolean }> {
  const files = { 'checker.py': checker, 'input.txt': input, 'correct_output.txt': expected };
  for (const [name, content] of Object.entries({ ...files, 'solution_output.txt': given })) {
    await sandbox.writeFile(`${sandbox.workspace}/${name}`, content);
  }
  const argv = ['python3', ...Object.keys(files), 'solution_output.txt'];
  const end = await sandbox.exec({ argv, timeoutMs: CHECKER_MS });
  // A number alone on its last line: what stands before may repeat what the answer printed.
  const last = end.stdout.text.trim().split('\n').at(-1)?.trim() ?? '';
  const said = Number(last);
  if (end.exitCode === 0 && last !== '' && !Number.isNaN(said)) return said;
  const why = end.stderr.text.slice(-500) || (last === '' ? 'said nothing' : `said "${last.slice(0, 200)}"`);
  return { why, timedOut: end.timedOut };
}

function missing(program: string): RolloutError {
  return new RolloutError('GraderFailed', `sandboxes on this host have no ${program}: install it below /usr`);
}
