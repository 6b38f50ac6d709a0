import { PythonPools } from '../activities/grading/python-pools.ts';
import { builtIn, HandlerRegistry } from '../activities/handlers/registry.ts';
import { GradingHost } from '../client/grading-host.ts';
import { gradeRecorded } from '../client/recorded.ts';
import { loadConfig } from '../config/load.ts';
import { loadTools } from '../config/tools.ts';
import type { BenchOptions, BenchResult } from './main.ts';
import { percentile, rounded } from './measure.ts';

/** Grades under way at once. */
const AT_ONCE = 4;
const SECONDS = 600;

/** One grade of each kind, over and over. */
const KINDS = {
  math: {
    handler: 'math',
    data: { problem: 'Half of 1?', answer: '\\frac{1}{2}' },
    response: '\\boxed{0.5}',
  },
  quantity: {
    handler: 'stem',
    data: { question: 'g?', answer: '9.81 m/s^2' },
    response: '\\boxed{981 cm/s^2}',
  },
  choice: {
    handler: 'stem',
    data: { question: 'Which?', choices: ['a', 'b'], answer: 1 },
    response: '\\boxed{B}',
  },
  program: {
    handler: 'code',
    data: { question: 'Add.', input_output: '{"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}' },
    response: '```python\nprint(sum(map(int, input().split())))\n```',
  },
  function: {
    handler: 'code',
    data: { text: 'Add.', test_list: ['assert add(1, 2) == 3'] },
    response: '```python\ndef add(a, b): return a + b\n```',
  },
} as const;

/** A program that sleeps in all of its tests until it is ended for that. */
const ASLEEP = {
  handler: 'code-fraction',
  data: {
    question: 'Wait.',
    time_limit: 0.25,
    input_output: JSON.stringify({ inputs: Array(12).fill('1'), outputs: Array(12).fill('1') }),
  },
  response: '```python\nimport time\ntime.sleep(1e6)\n```',
};

/** Grades per second of each kind and their p99; and those of maths and of programs while ones that hang are graded beside. */
export async function benchGraders({ n: wanted, say }: BenchOptions): Promise<BenchResult> {
  const python = new PythonPools(() => loadTools().python);
  const registry = new HandlerRegistry(builtIn(), python);
  const host = new GradingHost(loadConfig());
  let grades = 0;
  const grade = async ({ handler, data, response }: { handler: string; data: object; response: string }) => {
    const started = performance.now();
    const options = {
      registry,
      sandboxes: host.client,
      id: `bench-${++grades}`,
      deadlines: { evaluateSeconds: SECONDS },
    };
    const task = { handler, id: 'bench', data: { ...data } };
    const { total } = await gradeRecorded(task, response, {
      ...options,
      signal: new AbortController().signal,
    });
    if (total !== 1) throw new Error(`${handler}: a right answer was graded ${total}`);
    return performance.now() - started;
  };
  const measure = async (kind: keyof typeof KINDS, n: number) => {
    for (let warm = 0; warm < AT_ONCE; warm++) await grade(KINDS[kind]);
    const all: number[] = [];
    let begun = 0;
    const started = performance.now();
    const lane = async () => {
      while (begun++ < n) all.push(await grade(KINDS[kind]));
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
    const per_s = rounded((1000 * all.length) / (performance.now() - started));
    return { per_s, p50_ms: percentile(all, 50), p99_ms: percentile(all, 99) };
  };
  try {
    const figures: Record<string, Record<string, unknown>> = {};
    for (const kind of Object.keys(KINDS) as (keyof typeof KINDS)[]) {
      const inSandbox = kind === 'program' || kind === 'function';
      const found = await measure(kind, Math.max(1, Math.round((wanted ?? 500) / (inSandbox ? 8 : 1))));
      figures[kind] = found;
      say(`${kind}: ${found.per_s} grades/s, ${found.p50_ms} ms p50, ${found.p99_ms} ms p99`);
    }
    const hanging = ['(10^9)!', '9^{9^{9}}'].map((response) =>
      grade({ ...KINDS.math, response: `\\boxed{${response}}` }).catch(() => 'failed'),
    );
    const beside = await measure('math', wanted ?? 500);
    await Promise.all(hanging);
    say(`math beside two that hang: ${beside.per_s} grades/s, ${beside.p99_ms} ms p99`);
    const asleep = grade(ASLEEP).catch(() => 'failed');
    const programs = await measure('program', Math.max(1, Math.round((wanted ?? 500) / 16)));
    await asleep;
    say(`program beside one that sleeps: ${programs.per_s} grades/s, ${programs.p99_ms} ms p99`);
    return {
      ...{ bench: 'graders', n: grades, ...figures, math_beside_hanging: beside },
      ...{ program_beside_hanging: programs, peers: {}, ratios: {} },
    };
  } finally {
    python.close();
    await host.close();
  }
}
