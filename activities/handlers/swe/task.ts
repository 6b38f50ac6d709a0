import { z } from 'zod';
import { rowsOf } from '../layouts.ts';

/** A list, or the JSON of one, as SWE-bench's files have it. */
const Names = z.unknown().transform((value, context): string[] => {
  const names = z.array(z.string()).safeParse(typeof value === 'string' ? parsed(value) : value);
  if (names.data) return names.data;
  context.addIssue({ code: 'custom', message: 'expected a list of test ids, or the JSON of one' });
  return z.NEVER;
});

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // the schema behind it says what was expected
  }
}

/** The JSON of what a schema reads. */
function jsonOf<S>(schema: z.ZodType<S>) {
  return z.string().transform((text, context): S => {
    const read = schema.safeParse(parsed(text));
    if (read.data !== undefined) return read.data;
    const issue = read.error?.issues[0];
    context.addIssue({
      code: 'custom',
      path: issue?.path ?? [],
      message: parsed(text) === undefined ? 'is no JSON' : (issue?.message ?? 'is not readable'),
    });
    return z.NEVER;
  });
}

const HostPath = z.string().startsWith('/', 'expected an absolute path on the machines that run sandboxes');

/** Where the repository and what it needs come from. */
const Environment = {
  /** SIF file or folder with a root file system, that has the repository and all it needs; needs apptainer. */
  image: HostPath.optional(),
  /** The repository: in the image, or a folder of the host. */
  repository: z.string().startsWith('/').default('/testbed'),
  /** Folder of the host with installed packages (pytest among them), where there is no image. */
  packages: HostPath.optional(),
  /** Folders of the repository that its packages are imported from. */
  python_path: z.array(z.string()).default(['']),
  /** The Python that has pytest. */
  python: z.string().min(1).default('python3'),
};

/** Repositories whose tests pytest cannot run: every test would be missing, and the right patch worth 0. */
const OWN_RUNNER = /^django\/django$/i;

/** SWE-bench's layout as it is, with where the instance's files are. */
export const SweBenchTask = z.looseObject({
  instance_id: z.string().min(1),
  repo: z
    .string()
    .min(1)
    .refine((repo) => !OWN_RUNNER.test(repo), {
      message: 'its tests are run by a runner of its own, and tests are run by pytest here',
    }),
  base_commit: z.string().optional(),
  problem_statement: z.string().min(1),
  /** Never shown to the agent; `patch` only serves checks of the task itself. */
  patch: z.string().optional(),
  test_patch: z.string().min(1),
  FAIL_TO_PASS: Names.refine((names) => names.length > 0, { message: 'expected at least one test' }),
  PASS_TO_PASS: Names,
  ...Environment,
});

const R2eTests = jsonOf(
  z.looseObject({
    test_file_names: z.array(z.string().regex(/^[\w.-]+\.py$/, 'expected the name of a Python file')).min(1),
    test_file_codes: z.array(z.string()).min(1),
  }),
);

/** R2E-Gym's layout: tests by their source, and the status that each has with the right patch. */
export const R2eGymTask = z.looseObject({
  repo_name: z.string().min(1),
  commit_hash: z.string().min(1),
  problem_statement: z.string().min(1),
  execution_result_content: R2eTests,
  expected_output_json: jsonOf(z.record(z.string(), z.string())),
  ...Environment,
});

/** An instance as the grader works with it. */
export interface Instance {
  readonly statement: string;
  readonly environment: Environment;
  /** How the tests come into the repository: a patch, or files. */
  readonly tests: { readonly patch: string } | { readonly files: Readonly<Record<string, string>> };
  /** Test files to run, from the repository's root. */
  readonly testFiles: readonly string[];
  /** Ids of tests that must pass; or the status that each must have. */
  readonly expected:
    | { readonly failToPass: readonly string[]; readonly passToPass: readonly string[] }
    | { readonly statuses: Readonly<Record<string, string>> };
}

export interface Environment {
  readonly image?: string | undefined;
  readonly repository: string;
  readonly packages?: string | undefined;
  readonly python_path: readonly string[];
  readonly python: string;
}

/** A row of one of the data sets, its fields as they are there. */
export const SweTask = z
  .record(z.string(), z.unknown())
  .superRefine((row, context) => {
    const { error } = schemaOf(row).safeParse(row);
    for (const { path, message } of error?.issues ?? []) context.addIssue({ code: 'custom', path, message });
    if (!error && row.image === undefined && row.packages === undefined) {
      const message = 'expected an image, or a repository and packages (docs/graders.md)';
      context.addIssue({ code: 'custom', path: ['image'], message });
    }
  })
  .meta(
    rowsOf('A row of SWE-bench or R2E-Gym, with where its environment is.', {
      'SWE-bench': SweBenchTask,
      'R2E-Gym': R2eGymTask,
    }),
  );
export type SweTask = z.infer<typeof SweTask>;

const schemaOf = (row: SweTask) => (row.expected_output_json === undefined ? SweBenchTask : R2eGymTask);

/** The instance that a row is; the row has passed {@link SweTask}. */
export function instanceOf(row: SweTask): Instance {
  if (row.expected_output_json === undefined) {
    const task = SweBenchTask.parse(row);
    return {
      statement: task.problem_statement,
      environment: task,
      tests: { patch: task.test_patch },
      testFiles: testFilesOf(task.test_patch, task.FAIL_TO_PASS),
      expected: { failToPass: task.FAIL_TO_PASS, passToPass: task.PASS_TO_PASS },
    };
  }
  const task = R2eGymTask.parse(row);
  const { test_file_names: names, test_file_codes: codes } = task.execution_result_content;
  const files = Object.fromEntries(names.map((name, index) => [`r2e_tests/${name}`, codes[index] ?? '']));
  return {
    statement: task.problem_statement,
    environment: task,
    tests: { files },
    testFiles: Object.keys(files),
    expected: { statuses: task.expected_output_json },
  };
}

/** Files that a patch leaves, by its headers: the Python ones are the tests to run. */
export function filesOfPatch(patch: string): string[] {
  return [...patch.matchAll(/^\+\+\+ (?:b\/)?(?!\/dev\/null)([^\t\n]+)/gm)].map(([, file]) => file as string);
}

/** Those of the patch, and those that the ids name. */
function testFilesOf(patch: string, ids: readonly string[]): string[] {
  const files = filesOfPatch(patch).filter((file) =>
    /(?:^|\/)(?:test_[^/]*|[^/]*_test|tests)\.py$/.test(file),
  );
  const named = ids.filter((id) => id.includes('.py::')).map((id) => id.slice(0, id.indexOf('::')));
  return [...new Set([...files, ...named])];
}
