import { execFile } from 'node:child_process';
import { cp, mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Recipe } from './recipes.ts';

const run = promisify(execFile);
const PYTEST = 'pytest==9.2.0';
/** With it, pip reads the metadata of old sources without an environment for each. */
const BUILD = ['setuptools==80.9.0', 'wheel==0.45.1', 'flit_core==3.12.0'];
const IS_TEST = /(?:^|\/)tests?\/|(?:^|\/)test_[^/]*\.py$/;

/** An instance without what running its tests tells: which of them must pass. */
export interface Draft {
  readonly row: Record<string, unknown>;
  readonly patch: string;
}

/** What a recipe makes in a folder; what is there already is kept. `python` makes environments (module venv). */
export async function makeDraft(recipe: Recipe, folder: string, python: string): Promise<Draft> {
  const own = path.join(folder, `${recipe.package}-${recipe.before}`);
  await mkdir(own, { recursive: true });
  const tools = path.join(folder, 'tools');
  const pip = [
    path.join(tools, 'bin', 'python'),
    '-m',
    'pip',
    '--disable-pip-version-check',
    '--quiet',
  ] as const;
  await once(tools, async (target) => {
    await run(python, ['-m', 'venv', target]);
    await run(path.join(target, 'bin', 'python'), ['-m', 'pip', 'install', '--quiet', ...BUILD]);
  });
  const [before, after] = await Promise.all(
    [recipe.before, recipe.after].map((version) => source(pip, recipe.package, version, own)),
  );
  const packages = path.join(own, 'packages');
  await once(packages, async (target) => {
    await run(pip[0], [
      ...pip.slice(1),
      'install',
      '--target',
      target,
      '--only-binary',
      ':all:',
      PYTEST,
      ...recipe.needs,
    ]);
  });
  const { patch, testPatch } = await changes(before as string, after as string, path.join(own, 'git'));
  const row = {
    instance_id: `${recipe.package}-${recipe.after}`,
    repo: recipe.package,
    base_commit: recipe.before,
    problem_statement: recipe.issue,
    patch,
    test_patch: testPatch,
    repository: before,
    packages,
    python_path: recipe.pythonPath,
  };
  return { row, patch };
}

async function source(pip: readonly string[], name: string, version: string, own: string): Promise<string> {
  const folder = path.join(own, version);
  await once(folder, async (target) => {
    await mkdir(target);
    const options = ['--no-deps', '--no-binary', ':all:', '--no-build-isolation', '--dest', target];
    await run(pip[0] as string, [...pip.slice(1), 'download', ...options, `${name}==${version}`]);
    const [archive] = await readdir(target);
    await run('tar', ['-xzf', archive as string, '--strip-components=1'], { cwd: target });
    await rm(path.join(target, archive as string));
  });
  return folder;
}

/** The difference of two versions, as git writes it: of the source, and of the tests. */
async function changes(before: string, after: string, scratch: string) {
  await rm(scratch, { recursive: true, force: true });
  await cp(before, scratch, { recursive: true });
  const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' };
  const git = async (...args: string[]) =>
    (
      await run('git', ['-c', 'user.name=x', '-c', 'user.email=x', ...args], {
        cwd: scratch,
        env,
        maxBuffer: 1 << 28,
      })
    ).stdout;
  await git('init', '--quiet');
  await git('add', '--all', '--force');
  await git('commit', '--quiet', '--message=before');
  for (const name of await readdir(scratch))
    if (name !== '.git') await rm(path.join(scratch, name), { recursive: true });
  await cp(after, scratch, { recursive: true });
  await git('add', '--all', '--force');
  const changed = (await git('diff', '--cached', '--name-only', '-z', 'HEAD')).split('\0');
  const diff = (files: string[]) =>
    git('diff', '--cached', '--binary', '--no-renames', 'HEAD', '--', ...files);
  const tests = changed.filter((file) => IS_TEST.test(file) && !file.includes('__pycache__'));
  const sources = changed.filter(
    (file) => file.endsWith('.py') && !IS_TEST.test(file) && file !== 'setup.py',
  );
  if (tests.length === 0 || sources.length === 0)
    throw new Error(`${before} and ${after} have the same tests`);
  return { patch: await diff(sources), testPatch: await diff(tests) };
}

/** Makes a folder, unless it is there. */
async function once(target: string, make: (draft: string) => Promise<void>): Promise<void> {
  if ((await readdir(path.dirname(target)).catch((): string[] => [])).includes(path.basename(target))) return;
  await mkdir(path.dirname(target), { recursive: true });
  // A virtual environment knows its own path, so it is made in place and removed if that fails.
  try {
    await make(target);
  } catch (error) {
    await rm(target, { recursive: true, force: true });
    throw error;
  }
}
