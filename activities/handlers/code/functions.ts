import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { RolloutError } from '../../../contracts/failures.ts';
import { SandboxLimits } from '../../../contracts/sandbox.ts';
import type { BoundSandbox } from '../../sandbox/bound.ts';
import type { EvaluateContext } from '../handler.ts';
import { limitsOf, type TestLimits } from './limits.ts';
import type { FunctionProblem, FunctionTests } from './problem.ts';
import { VERDICTS, type Verdict, verdictOfEnd } from './verdict.ts';

const MB = 1024 ** 2;
/** Bytes that a solution may print, and that its results may take. */
const OUTPUT_BYTES = 16 * MB;
/** Of the tests themselves: seconds of processor time, and milliseconds on the clock. */
const [HARNESS_SECONDS, HARNESS_MS] = [20, 90_000];
/** Lists and objects inside each other in a result. */
const DEEPEST = 1000;
/** Each round answers the calls that depend on the results of the one before. */
const MOST_ROUNDS = 20;
const source = (name: string) => readFileSync(new URL(`./${name}`, import.meta.url), 'utf8');
// As an argument: to write a file takes a process of its own, and there are three of these for each grade.
const [CALLER, HARNESS] = ['caller.py', 'harness.py'].map((name) => source('values.py') + source(name)) as [
  string,
  string,
];

type Sandboxes = Pick<EvaluateContext<unknown>, 'each'>;
/** A call, and what came of it, as values.py writes them; only Python looks inside. */
type Call = unknown;
type Result = Record<string, unknown>;

const HarnessReply = z.union([
  z.object({ verdict: z.enum(VERDICTS) }),
  z.object({ calls: z.array(z.unknown()).min(1) }),
  z.object({ verdicts: z.array(z.enum(['AC', 'WA', 'RE'])) }),
  z.object({ unsupported: z.string() }),
]);

/**
 * Verdicts on functions. The tests run in one sandbox and the solution in another: of the tests it sees the arguments
 * of its calls, and all it can give back is values. So it can neither read what is expected nor change what judges.
 * @throws RolloutError GraderFailed if the tests themselves fail, SandboxFailed
 */
export async function judgeFunctions(
  problem: FunctionProblem,
  code: string,
  { each }: Sandboxes,
  stopEarly: boolean,
): Promise<Verdict[]> {
  const { tests } = problem;
  const limits = limitsOf(problem, 'python', OUTPUT_BYTES);
  const call = (calls: readonly Call[]) => (sandbox: BoundSandbox) =>
    callSolution(sandbox, code, calls, limits);
  if ('source' in tests) {
    const whole = withPrelude(code, tests);
    return [await judgeSource(tests, (calls) => callOnce(each, whole, calls, limits), each)];
  }
  const made = await each(
    tests.cases.map(({ args }) => [{ name: tests.entry, args: args.map((json) => ({ json })), named: {} }]),
    (sandbox, calls) => call(calls)(sandbox),
    { spec: limits.spec, enough: (one) => stopEarly && one.verdict !== undefined },
  );
  const results = made.map(({ results: [result] }) => result ?? {});
  const reply = await harness(each, { cases: tests.cases, results, wrapped: tests.wrapped }, true);
  if ('verdict' in reply) return made.map(({ verdict }) => verdict ?? reply.verdict);
  if (!('verdicts' in reply)) throw unexpected(reply);
  return reply.verdicts.map((verdict, index) => made[index]?.verdict ?? verdict);
}

/** An answer that is the body of a function needs its head, and any may use what the problem defines. */
function withPrelude(code: string, { prelude, entry }: Extract<FunctionTests, { source: string }>): string {
  if (entry === undefined) return code;
  const whole = new RegExp(`^(?:async +)?def +${entry}\\b|^${entry} *=`, 'm').test(code);
  return whole ? `${prelude}\n\n${code}` : `${prelude}${code}`;
}

async function judgeSource(
  tests: Extract<FunctionTests, { source: string }>,
  make: (calls: readonly Call[]) => Promise<Made>,
  each: Sandboxes['each'],
): Promise<Verdict> {
  let known: { call: Call; result: Result }[] = [];
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const reply = await harness(each, { ...tests, known }, known.length > 0);
    if ('verdict' in reply) return reply.verdict;
    if (!('calls' in reply)) throw unexpected(reply);
    const { calls } = reply;
    // The same tests ask other things each time: the solution answers at random.
    if (round === MOST_ROUNDS - 1 && calls.length <= known.length) return 'WA';
    const { verdict, results } = await make(calls);
    if (verdict) return verdict;
    known = calls.map((call, index) => ({ call, result: results[index] as Result }));
  }
  throw new RolloutError('GraderFailed', `the tests ask for more after ${MOST_ROUNDS} rounds of calls`);
}

/** What came of calls; or a verdict, if the solution did not live to answer them all. */
interface Made {
  readonly verdict?: Verdict;
  readonly results: readonly Result[];
}

async function callOnce(
  each: Sandboxes['each'],
  code: string,
  calls: readonly Call[],
  limits: TestLimits,
): Promise<Made> {
  const [made] = await each([calls], (sandbox, own) => callSolution(sandbox, code, own, limits), {
    spec: limits.spec,
  });
  return made as Made;
}

async function callSolution(
  sandbox: BoundSandbox,
  code: string,
  calls: readonly Call[],
  { timeoutMs }: TestLimits,
): Promise<Made> {
  const stdin = Buffer.from(JSON.stringify({ solution: code, calls })).toString('base64');
  const argv = ['python3', '-c', CALLER];
  const end = await sandbox.exec({ argv, stdin, timeoutMs, maxOutputBytes: OUTPUT_BYTES });
  const failed = verdictOfEnd(end);
  const lines = linesOf(end.stdout.text);
  if (lines === undefined) return { verdict: failed ?? 'RE', results: [] };
  const [begin, ...results] = lines;
  if (begin?.compile !== undefined) return { verdict: 'CE', results };
  if (begin?.load !== undefined) {
    return { verdict: String(begin.load).startsWith('MemoryError') ? 'MLE' : 'RE', results };
  }
  if (results.length !== calls.length) return { verdict: failed ?? 'RE', results };
  return { results };
}

/** The lines that the solution's process wrote; undefined if the solution wrote there as well. */
function linesOf(text: string): Result[] | undefined {
  const lines = text.split('\n').filter((line) => line !== '');
  const read = z.array(z.record(z.string(), z.unknown())).safeParse(lines.map(fromJson)).data;
  return read?.every((line) => isShallow(line)) ? read : undefined;
}

/** Whether what reads a value by calling itself comes to an end with it. Does not call itself. */
function isShallow(value: unknown): boolean {
  const rest: [unknown, number][] = [[value, 0]];
  for (let one = rest.pop(); one; one = rest.pop()) {
    const [part, depth] = one;
    if (typeof part !== 'object' || part === null) continue;
    if (depth === DEEPEST) return false;
    for (const inner of Object.values(part)) rest.push([inner, depth + 1]);
  }
  return true;
}

/** `onValues`: the job holds what the solution gave, and what takes too much time or memory with that is its doing. */
async function harness(
  each: Sandboxes['each'],
  job: object,
  onValues: boolean,
): Promise<z.infer<typeof HarnessReply>> {
  const [reply] = await each(
    [job],
    async (sandbox, own) => {
      const stdin = Buffer.from(JSON.stringify(own)).toString('base64');
      const argv = ['python3', '-c', HARNESS];
      const end = await sandbox.exec({ argv, stdin, timeoutMs: HARNESS_MS, maxOutputBytes: 16 * MB });
      const parsed = HarnessReply.safeParse(end.exitCode === 0 ? fromJson(end.stdout.text) : undefined);
      if (parsed.data) return parsed.data;
      const isSpent = end.timedOut || end.limit === 'cpu' || end.limit === 'memory';
      if (onValues && isSpent) return { verdict: verdictOfEnd(end) ?? 'TLE' };
      const why = end.timedOut ? 'they took too long' : end.stderr.text.trim().slice(-500);
      throw new RolloutError('GraderFailed', `the problem's tests: ${why}`);
    },
    { spec: { limits: SandboxLimits.parse({ cpuSeconds: HARNESS_SECONDS }) } },
  );
  if (!reply) throw new RolloutError('GraderFailed', "the problem's tests were not run");
  if ('unsupported' in reply) throw unexpected(reply);
  return reply;
}

function unexpected(reply: z.infer<typeof HarnessReply>): RolloutError {
  const why =
    'unsupported' in reply ? `they pass ${reply.unsupported} to the solution` : 'an unexpected answer';
  return new RolloutError('GraderFailed', `the problem's tests: ${why}`);
}

function fromJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
