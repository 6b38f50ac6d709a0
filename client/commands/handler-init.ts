import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { builtIn } from '../../activities/handlers/registry.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { Output } from '../output.ts';

const SKELETON = new URL('../skeleton/', import.meta.url);
const FILES = ['handler.ts', 'prompt.md', 'handler.test.ts'];
/** The task that the skeleton's handler has for an example. */
const EXAMPLE = { question: 'How many lines does `seq 3 14` print?', answer: '12' };
/** A package cannot depend on one of its own name. */
const PROJECT_NAME = 'durable-rollouts';
const TSCONFIG = {
  compilerOptions: {
    module: 'nodenext',
    target: 'es2023',
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
  },
};

/**
 * `rollouts handler init <name>`: a task type that works, with a test, in a folder of that name; outside the checkout, as
 * a package of its own.
 * @throws RolloutError InvalidRequest if the name is no name or taken, or the folder is there
 */
export async function handlerCommand([action, name]: readonly string[], output: Output): Promise<number> {
  if (action !== 'init' || name === undefined || !/^[a-z][a-z0-9-]{0,49}$/.test(name)) {
    throw new RolloutError(
      'InvalidRequest',
      'use: rollouts handler init <name>, of at most 50 small letters, digits and hyphens, the first a letter',
    );
  }
  if (name === PROJECT_NAME || builtIn().some((handler) => handler.name === name)) {
    throw new RolloutError('InvalidRequest', `${name}: the project, or a handler of its own, is called so`);
  }
  const folder = path.resolve(name);
  const files = new Map<string, string>();
  for (const file of FILES) {
    files.set(file, (await readFile(new URL(file, SKELETON), 'utf8')).replaceAll('__NAME__', name));
  }
  files.set('tasks.jsonl', `${JSON.stringify({ id: 'first', ...EXAMPLE })}\n`);
  const outside = path.relative(PROJECT_ROOT, folder).startsWith('..');
  if (outside) {
    files.set('package.json', await packageOf(name));
    files.set('tsconfig.json', `${JSON.stringify(TSCONFIG, undefined, 2)}\n`);
  }
  try {
    await mkdir(folder);
  } catch (error) {
    throw new RolloutError('InvalidRequest', `${folder}: ${messageOf(error)}`, { cause: error });
  }
  for (const [file, text] of files) await writeFile(path.join(folder, file), text);
  const file = outside ? './handler.ts' : `./${name}/handler.ts`;
  const tasks = outside ? 'tasks.jsonl' : `${name}/tasks.jsonl`;
  const test = outside
    ? `cd ${name} && npm install && npm test`
    : `node --import tsx --test ${name}/handler.test.ts`;
  const start = outside ? 'npx rollouts up' : 'npm start --';
  output.result({ folder, files: [...files.keys()], test }, () =>
    [
      `${folder}: ${[...files.keys()].join(', ')}`,
      `test it:  ${test}`,
      `run it:   ${start} --no-sample --handlers ${file}`,
      `          npx rollouts run --handlers ${file} --handler ${name} --tasks ${tasks}`,
    ].join('\n'),
  );
  return 0;
}

/** A package that can be installed elsewhere and is then named as such; what it is tried with is as in this project. */
async function packageOf(name: string): Promise<string> {
  const { dependencies, devDependencies } = JSON.parse(
    await readFile(path.join(PROJECT_ROOT, 'package.json'), 'utf8'),
  );
  const content = {
    name,
    version: '0.1.0',
    private: true,
    type: 'module',
    exports: './handler.ts',
    scripts: { test: 'node --import tsx --test handler.test.ts', check: 'tsc' },
    devDependencies: { tsx: dependencies.tsx, typescript: devDependencies.typescript },
    dependencies: { [PROJECT_NAME]: `file:${PROJECT_ROOT}` },
  };
  return `${JSON.stringify(content, undefined, 2)}\n`;
}
