import { randomBytes, randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Reward } from '../../../contracts/trajectory.ts';
import type { BoundSandbox } from '../../sandbox/bound.ts';
import { excludedFrom } from './protected.ts';
import { passes, readReport, type Status, statusIn, type TestResult } from './report.ts';
import { must, placeRepository, variablesOf } from './sandbox.ts';
import type { Instance } from './task.ts';

const LAUNCHER = readFileSync(new URL('./launcher.py', import.meta.url), 'utf8');
const MOST_REPORT_BYTES = 16 * 1024 ** 2;
const APPLY_MS = 60_000;
/** Names that only other systems find ambiguous (`a\\b`, `git~1`) are names. */
const APPLY = [
  ...['git', '-c', 'core.protectNTFS=false', '-c', 'core.protectHFS=false'],
  ...['apply', '--binary', '--whitespace=nowarn'],
];
/** Git without any settings but its own. */
const GIT_ALONE = {
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CEILING_DIRECTORIES: '/workspace',
};

/** Python without what a folder on its path, the patched repository perhaps, has it import by itself. */
const PYTHON_ALONE = ['-I', '-S'];

/** What running an instance's tests over a patch gave. */
export interface Ran {
  /** False: the patch does not apply. */
  readonly applied: boolean;
  readonly timedOut: boolean;
  /** Every test that was run; undefined if the run left no report that can be believed. */
  readonly results: readonly TestResult[] | undefined;
}

/**
 * Runs an instance's own tests over a patch, in a fresh sandbox: the repository as it was, the task's tests, then of
 * the patch what is no test and configures none. `seconds`: of the tests.
 * @throws RolloutError GraderFailed if the task's tests do not apply or its Python has no pytest
 */
export async function runTests(
  sandbox: BoundSandbox,
  instance: Instance,
  { patch, seconds }: { patch: Buffer; seconds: number },
): Promise<Ran> {
  const { environment } = instance;
  const root = await placeRepository(sandbox, environment);
  // Where the patch cannot reach, under a name that it cannot know.
  const own = `${sandbox.workspace}/${randomBytes(8).toString('hex')}`;
  await must(sandbox, 'GraderFailed', 'no folder for the grader', {
    argv: ['mkdir', own],
    timeoutMs: APPLY_MS,
  });
  await sandbox.writeFile(`${own}/launcher.py`, LAUNCHER);
  const variables = variablesOf(environment);
  // Before anything of the patch is there that could keep it from running: that would be no grade instead of a bad one.
  await must(sandbox, 'GraderFailed', 'the tests cannot be run', {
    argv: [environment.python, `${own}/launcher.py`, 'check'],
    environment: variables,
    timeoutMs: APPLY_MS,
  });
  await placeTests(sandbox, instance, root, own);
  // As the task has them: a patch may move a file without naming where it was.
  const sources = await readTests(sandbox, instance, root);
  if (patch.length > 0) {
    await sandbox.writeFile(`${own}/answer.patch`, patch);
    const excluded = excludedFrom(instance).map((pattern) => `--exclude=${pattern}`);
    const argv = [...APPLY, ...excluded, `${own}/answer.patch`];
    const end = await sandbox.exec({ argv, cwd: root, environment: GIT_ALONE, timeoutMs: APPLY_MS });
    if (end.exitCode !== 0) return { applied: false, timedOut: false, results: undefined };
  }
  const canaries = await placeCanaries(sandbox, sources, root);
  // Told to the process that reports, and to no other.
  const mark = randomBytes(16).toString('hex');
  const end = await sandbox.exec({
    argv: [
      ...[environment.python, ...PYTHON_ALONE, `${own}/launcher.py`],
      ...[root, environment.python_path.join(':'), ...instance.testFiles],
    ],
    cwd: root,
    environment: variables,
    stdin: Buffer.from(`${mark}\n`).toString('base64'),
    timeoutMs: seconds * 1000,
    maxOutputBytes: MOST_REPORT_BYTES,
  });
  const [, report = '', ...more] = end.stdout.text.split(mark);
  const results = more.length === 1 ? readReport(report) : undefined;
  const timedOut = end.timedOut || end.limit === 'idle';
  return { applied: true, timedOut, results: results && withoutCanaries(results, canaries) };
}

/** @throws RolloutError GraderFailed: without its tests a task can grade nothing */
async function placeTests(
  sandbox: BoundSandbox,
  { tests }: Instance,
  root: string,
  own: string,
): Promise<void> {
  if ('patch' in tests) {
    await sandbox.writeFile(`${own}/tests.patch`, ended(tests.patch));
    await must(sandbox, 'GraderFailed', "the task's test patch does not apply", {
      argv: [...APPLY, `${own}/tests.patch`],
      cwd: root,
      environment: GIT_ALONE,
      timeoutMs: APPLY_MS,
    });
    return;
  }
  for (const [file, content] of Object.entries(tests.files))
    await sandbox.writeFile(`${root}/${file}`, content);
}

/** The test files' sources. */
async function readTests(
  sandbox: BoundSandbox,
  { testFiles }: Instance,
  root: string,
): Promise<Map<string, string>> {
  const sources = new Map<string, string>();
  for (const file of testFiles) {
    sources.set(file, (await sandbox.readFile(`${root}/${file}`, MOST_REPORT_BYTES)).toString('utf8'));
  }
  return sources;
}

/** Names of tests that must fail: functions, and methods of one class of unittest's. */
interface Canaries {
  readonly functions: readonly string[];
  readonly group: string;
  readonly methods: readonly string[];
}

/**
 * Writes the test files anew, each with some more tests, that must fail, one for each way in which tests fail. What makes
 * every test pass, by patching the runner, unittest or what asserts, or by writing a report of its own, makes them pass too.
 */
async function placeCanaries(
  sandbox: BoundSandbox,
  sources: ReadonlyMap<string, string>,
  root: string,
): Promise<Canaries> {
  const taken = [...sources.values()].join('\n');
  const number = randomInt(2, 100);
  const bodies = [failing(), `with __import__('pytest').raises(ValueError):\n        int('${number}')`];
  const ofUnittest = [
    `self.assertEqual(${number}, ${number + 1})`,
    `self.assertTrue(${number} > ${number + randomInt(1, 9)})`,
    `with self.assertRaises(ValueError):\n            int('${number}')`,
    failing(),
  ];
  const names = canaryNames(taken, bodies.length + ofUnittest.length + 1);
  const functions = names.slice(0, bodies.length);
  const methods = names.slice(bodies.length, -1);
  const group = `Test${(names.at(-1) as string).slice('test'.length).replace(/_(\w)/g, (_, letter) => letter.toUpperCase())}`;
  const text = [
    ...functions.map((name, index) => `def ${name}():\n    ${bodies[index]}\n`),
    `class ${group}(__import__('unittest').TestCase):`,
    ...methods.map((name, index) => `    def ${name}(self):\n        ${ofUnittest[index]}\n`),
  ].join('\n');
  for (const [file, source] of sources) await sandbox.writeFile(`${root}/${file}`, `${source}\n\n${text}`);
  return { functions, group, methods };
}

/** Names such as the tests' own: made of words of theirs, so that no pattern tells them from those. */
function canaryNames(source: string, count: number): string[] {
  const words = [...source.matchAll(/\bdef test_(\w+)/g)].flatMap(([, name = '']) => name.split('_'));
  const pick = () => words[randomInt(words.length)] ?? '';
  const names = new Set<string>();
  for (let tries = 0; tries < 20 * count && words.length > 3 && names.size < count; tries++) {
    const name = ['test', pick(), pick(), pick()].filter((word) => word !== '').join('_');
    if (!source.includes(name)) names.add(name);
  }
  while (names.size < count) names.add(`test_${randomBytes(6).toString('hex')}`);
  return [...names];
}

/** A statement that fails, of no one form. */
function failing(): string {
  const number = randomInt(2, 100);
  const text = randomBytes(2).toString('hex');
  const forms = [
    `assert ${number} == ${number + randomInt(1, 9)}`,
    `assert len('${text}') == ${number + 4}`,
    `assert '${text}'.upper() == '${text}x'`,
    `assert sorted([${number}, 1]) == [${number}, 1]`,
    `assert '${text}' in ['${text}${number}']`,
    `assert [${number}] + [1] == [1, ${number}]`,
    `assert int('${number}') > ${number}`,
  ];
  return forms[randomInt(forms.length)] as string;
}

/** Undefined if a canary is not there, or did not fail. A file that cannot be imported has none, and no tests. */
function withoutCanaries(results: readonly TestResult[], canaries: Canaries): TestResult[] | undefined {
  const { functions, group, methods } = canaries;
  const failed = ({ place, name }: Pick<TestResult, 'place' | 'name'>) => {
    const found = results.filter((one) => one.place === place && one.name === name);
    return found.length > 0 && found.every(({ status }) => status === 'FAILED');
  };
  const modules = new Set(results.filter(({ name }) => name === functions[0]).map(({ place }) => place));
  const all = [...modules].flatMap((place) => [
    ...functions.map((name) => ({ place, name })),
    ...methods.map((name) => ({ place: `${place}.${group}`, name })),
  ]);
  if (!all.every(failed)) return undefined;
  const own = new Set(all.map(({ place, name }) => `${place} ${name}`));
  const rest = results.filter(({ place, name }) => !own.has(`${place} ${name}`));
  return rest.filter(({ place }) =>
    [...modules].some((module) => place === module || place.startsWith(`${module}.`)),
  );
}

/** A patch whose last line has an end: editors and models leave it out. */
export function ended(patch: string): string {
  return patch === '' || patch.endsWith('\n') ? patch : `${patch}\n`;
}

/** 1 if every test is as it must be, else 0; the parts say how many of each kind are. */
export function rewardOf({ expected }: Instance, { applied, timedOut, results }: Ran): Reward {
  const flags = { applied: applied ? 1 : 0, timed_out: timedOut ? 1 : 0, report: results ? 1 : 0 };
  const status = (id: string): Status | undefined => results && statusIn(results, id);
  const share = (list: readonly string[], right: (id: string) => boolean) =>
    list.length === 0 ? 1 : list.filter(right).length / list.length;
  if ('statuses' in expected) {
    const names = Object.keys(expected.statuses);
    const as_expected = share(names, (id) => status(id) === expected.statuses[id]);
    return { total: as_expected === 1 ? 1 : 0, parts: { ...flags, as_expected } };
  }
  const fail_to_pass = share(expected.failToPass, (id) => passes(status(id)));
  const pass_to_pass = share(expected.passToPass, (id) => passes(status(id)));
  const total = fail_to_pass === 1 && pass_to_pass === 1 && results ? 1 : 0;
  return { total, parts: { ...flags, fail_to_pass, pass_to_pass } };
}
