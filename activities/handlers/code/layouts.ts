import { z } from 'zod';
import { rowsOf } from '../layouts.ts';
import { pickledText } from './pickled-text.ts';
import { LEAST_MEMORY, type Problem, USUAL_MEMORY, USUAL_SECONDS } from './problem.ts';

/** A data set's layout: how its rows are known, checked, and read. */
interface Layout<T> {
  readonly name: string;
  /** The field by which a row is known to be of this layout. */
  readonly field: string;
  readonly schema: z.ZodType<T>;
  read(row: T): Problem;
}

const layout = <T>(one: Layout<T>): Layout<unknown> => one as unknown as Layout<unknown>;

const text = z.string();
const Statement = z.string().min(1);
const Tests = z.array(z.looseObject({ input: text, output: text })).min(1, 'expected at least one test');

/** A text that holds JSON, as JSON. */
function jsonText<T extends z.ZodType>(schema: T) {
  return z
    .string()
    .transform((value, context) => {
      try {
        return JSON.parse(value) as unknown;
      } catch (error) {
        context.addIssue({ code: 'custom', message: `is no JSON: ${(error as Error).message}` });
        return z.NEVER;
      }
    })
    .pipe(schema);
}

const memory = (bytes: number) => Math.max(LEAST_MEMORY, Math.ceil(bytes));

const humanEval = layout({
  name: 'HumanEval',
  field: 'entry_point',
  schema: z.looseObject({ prompt: Statement, entry_point: Statement, test: Statement }),
  read: ({ prompt, entry_point: entry, test }) => ({
    kind: 'function',
    statement: `Complete this function:\n\n\`\`\`\n${prompt}\`\`\``,
    starter: prompt,
    seconds: USUAL_SECONDS,
    memoryBytes: USUAL_MEMORY,
    tests: { source: `${test}\n\ncheck(${entry})\n`, prelude: prompt, entry },
  }),
});

const mbpp = layout({
  name: 'MBPP',
  field: 'test_list',
  schema: z
    .looseObject({
      text: Statement.optional(),
      prompt: Statement.optional(),
      test_list: z.array(Statement).min(1),
      test_setup_code: text.optional(),
      test_imports: z.array(text).optional(),
      challenge_test_list: z.array(text).optional(),
    })
    .refine((row) => row.text ?? row.prompt, { path: ['text'], message: 'expected a text or a prompt' }),
  read: (row) => ({
    kind: 'function',
    // The tests are part of the problem: only they say what the function is called.
    statement: `${row.text ?? row.prompt}\n\nYour code must pass these tests:\n\n${row.test_list.join('\n')}`,
    seconds: USUAL_SECONDS,
    memoryBytes: USUAL_MEMORY,
    tests: {
      source: [...row.test_list, ...(row.challenge_test_list ?? [])].join('\n'),
      prelude: [...(row.test_imports ?? []), row.test_setup_code ?? ''].join('\n'),
    },
  }),
});

const LiveCodeTests = z.array(
  z.looseObject({ input: text, output: text, testtype: z.enum(['stdin', 'functional']) }),
);

const liveCodeBench = layout({
  name: 'LiveCodeBench',
  field: 'public_test_cases',
  schema: z
    .looseObject({
      question_content: Statement,
      starter_code: text.nullish(),
      public_test_cases: jsonText(LiveCodeTests),
      /** JSON, or base64 of zlib of a pickle of that. */
      private_test_cases: z
        .string()
        .transform((value) => (/^\s*\[/.test(value) ? value : (pickledText(value) ?? 'not readable')))
        .pipe(jsonText(LiveCodeTests))
        .optional(),
      metadata: z.union([jsonText(z.looseObject({})), z.looseObject({})]).optional(),
    })
    .refine((row) => [...row.public_test_cases, ...(row.private_test_cases ?? [])].length > 0, {
      path: ['private_test_cases'],
      message: 'expected at least one test',
    })
    .refine(
      (row) =>
        row.public_test_cases[0]?.testtype !== 'functional' || typeof row.metadata?.func_name === 'string',
      { path: ['metadata', 'func_name'], message: 'expected the name of the function' },
    ),
  read: (row): Problem => {
    const tests = [...row.public_test_cases, ...(row.private_test_cases ?? [])];
    const starter = row.starter_code ?? '';
    const common = {
      statement: row.question_content,
      ...(starter === '' ? {} : { starter }),
      seconds: USUAL_SECONDS,
      memoryBytes: USUAL_MEMORY,
    };
    if (tests[0]?.testtype !== 'functional') return { kind: 'stdio', ...common, tests };
    const cases = tests.map(({ input, output }) => ({ args: input.trim().split('\n'), expected: output }));
    const entry = String(row.metadata?.func_name);
    return { kind: 'function', ...common, tests: { cases, entry, wrapped: false } };
  },
});

const texts = z.array(z.union([text, z.array(text).transform((lines) => lines.join('\n'))]));

/** Also TACO's, which says limits in words. */
const apps = layout({
  name: 'APPS, TACO',
  field: 'input_output',
  schema: z.looseObject({
    question: Statement,
    starter_code: text.nullish(),
    input_output: jsonText(
      z.union([
        z.looseObject({
          fn_name: z.string().min(1),
          inputs: z.array(z.array(z.unknown())).min(1),
          outputs: z.array(z.unknown()).min(1),
        }),
        z.looseObject({ inputs: texts.min(1), outputs: texts.min(1), fn_name: z.null().optional() }),
      ]),
    ).refine(({ inputs, outputs }) => inputs.length === outputs.length, {
      message: 'has not as many outputs as inputs',
    }),
    time_limit: z.union([text, z.number()]).nullish(),
    memory_limit: text.nullish(),
  }),
  read: (row): Problem => {
    const { inputs, outputs, fn_name } = row.input_output;
    const starter = row.starter_code ?? '';
    const common = {
      statement: row.question,
      ...(starter === '' ? {} : { starter }),
      seconds: Number.parseFloat(String(row.time_limit ?? '')) || USUAL_SECONDS,
      memoryBytes: memory(bytesIn(row.memory_limit ?? '') ?? USUAL_MEMORY),
    };
    if (typeof fn_name !== 'string') {
      const tests = inputs.map((input, index) => ({ input: String(input), output: String(outputs[index]) }));
      return { kind: 'stdio', ...common, tests };
    }
    const cases = inputs.map((args, index) => ({
      args: (args as unknown[]).map((arg) => JSON.stringify(arg)),
      expected: JSON.stringify(outputs[index]),
    }));
    return { kind: 'function', ...common, tests: { cases, entry: fn_name, wrapped: true } };
  },
});

function bytesIn(words: string): number | undefined {
  const [, number, unit = ''] = /^([\d.]+)\s*([kmg]?)/i.exec(words) ?? [];
  const size = Number.parseFloat(number ?? '');
  return Number.isNaN(size) ? undefined : size * 1024 ** ' kmg'.indexOf(unit.toLowerCase() || ' ');
}

const Lists = z
  .looseObject({ input: z.array(text), output: z.array(text) })
  .refine(({ input, output }) => input.length === output.length, {
    message: 'has not as many outputs as inputs',
  });

const codeContests = layout({
  name: 'CodeContests',
  field: 'public_tests',
  schema: z
    .looseObject({
      description: Statement,
      public_tests: Lists,
      private_tests: Lists.optional(),
      generated_tests: Lists.optional(),
      time_limit: z.looseObject({ seconds: z.number(), nanos: z.number().default(0) }).nullish(),
      memory_limit_bytes: z.number().nullish(),
      input_file: z.literal('', { error: 'problems that read a file are not supported' }).nullish(),
      output_file: z.literal('', { error: 'problems that write a file are not supported' }).nullish(),
    })
    .refine((row) => testsOf(row).length > 0, {
      path: ['private_tests'],
      message: 'expected at least one test',
    }),
  read: (row) => ({
    kind: 'stdio',
    statement: row.description,
    seconds: row.time_limit ? row.time_limit.seconds + row.time_limit.nanos / 1e9 : USUAL_SECONDS,
    memoryBytes: memory(row.memory_limit_bytes || USUAL_MEMORY),
    tests: testsOf(row),
  }),
});

type ListsOfTests = Record<
  'public_tests' | 'private_tests' | 'generated_tests',
  z.infer<typeof Lists> | undefined
>;

function testsOf(row: Partial<ListsOfTests>) {
  return [row.public_tests, row.private_tests, row.generated_tests].flatMap((lists) =>
    (lists?.input ?? []).map((input, index) => ({ input, output: lists?.output[index] ?? '' })),
  );
}

/** open-r1's. */
const codeforces = layout({
  name: 'Codeforces',
  field: 'official_tests',
  schema: z.looseObject({
    title: text.nullish(),
    description: Statement,
    input_format: text.nullish(),
    output_format: text.nullish(),
    note: text.nullish(),
    examples: z.array(z.looseObject({ input: text, output: text })).nullish(),
    official_tests: Tests,
    /** Seconds, and megabytes. */
    time_limit: z.number().nullish(),
    memory_limit: z.number().nullish(),
    generated_checker: text.nullish(),
    input_mode: z.literal('stdio', { error: 'only problems of input_mode stdio are supported' }).nullish(),
    interaction_format: z.literal('', { error: 'interactive problems are not supported' }).nullish(),
  }),
  read: (row) => ({
    kind: 'stdio',
    statement: [
      row.title && `# ${row.title}`,
      row.description,
      row.input_format && `## Input\n\n${row.input_format}`,
      row.output_format && `## Output\n\n${row.output_format}`,
      ...(row.examples ?? []).map(({ input, output }) => `## Example\n\n${input}\n\ngives\n\n${output}`),
      row.note && `## Note\n\n${row.note}`,
    ]
      .filter(Boolean)
      .join('\n\n'),
    seconds: row.time_limit ?? USUAL_SECONDS,
    memoryBytes: memory((row.memory_limit ?? 0) * 1024 ** 2 || USUAL_MEMORY),
    tests: row.official_tests,
    ...(row.generated_checker ? { checker: row.generated_checker } : {}),
  }),
});

const LAYOUTS = [humanEval, mbpp, liveCodeBench, apps, codeContests, codeforces];

/** A row of one of the data sets, its fields as they are there. */
export const CodeTask = z
  .record(z.string(), z.unknown())
  .superRefine((row, context) => {
    const found = layoutOf(row);
    if (!found) {
      const known = LAYOUTS.map(({ name, field }) => `${field} (${name})`).join(', ');
      context.addIssue({
        code: 'custom',
        message: `is of no known layout: expected one of the fields ${known}`,
      });
      return;
    }
    const { error } = found.schema.safeParse(row);
    for (const { path, message } of error?.issues ?? []) {
      context.addIssue({ code: 'custom', path, message });
    }
  })
  .meta(
    rowsOf(
      `A row of ${LAYOUTS.map(({ name }) => name).join(', ')}, known by its fields.`,
      Object.fromEntries(LAYOUTS.map(({ name, schema }) => [name, schema])),
    ),
  );
export type CodeTask = z.infer<typeof CodeTask>;

function layoutOf(row: CodeTask): Layout<unknown> | undefined {
  return LAYOUTS.find(({ field }) => row[field] !== undefined && row[field] !== null);
}

/** The problem that a row poses; the row has passed {@link CodeTask}. */
export function problemOf(row: CodeTask): Problem {
  const found = layoutOf(row);
  if (!found) throw new Error('a row that no schema has checked');
  return found.read(found.schema.parse(row));
}
