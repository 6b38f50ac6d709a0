import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { Output } from '../output.ts';

const SKELETON = new URL('../skeleton/', import.meta.url);
const FILES = ['handler.ts', 'prompt.md', 'handler.test.ts'];

/**
 * `rollouts handler init <name>`: a task type that works, with a test, in a folder of that name.
 * @throws RolloutError InvalidRequest if the name is no name, or the folder is there
 */
export async function handlerCommand([action, name]: readonly string[], output: Output): Promise<number> {
  if (action !== 'init' || name === undefined || !/^[a-z][a-z0-9-]{0,49}$/.test(name)) {
    throw new RolloutError(
      'InvalidRequest',
      'use: rollouts handler init <name>, of small letters, digits and hyphens',
    );
  }
  const folder = path.resolve(name);
  const files = new Map<string, string>();
  for (const file of FILES) {
    files.set(file, (await readFile(new URL(file, SKELETON), 'utf8')).replaceAll('__NAME__', name));
  }
  files.set('tasks.jsonl', '{"id":"first","question":"How many lines has /etc/passwd?","answer":"19"}\n');
  const outside = path.relative(PROJECT_ROOT, folder).startsWith('..');
  if (outside) files.set('package.json', packageOf(name));
  try {
    await mkdir(folder);
  } catch (error) {
    throw new RolloutError('InvalidRequest', `${folder}: ${messageOf(error)}`, { cause: error });
  }
  for (const [file, text] of files) await writeFile(path.join(folder, file), text);
  const test = outside
    ? `cd ${name} && npm install && npm test`
    : `node --import tsx --test ${name}/handler.test.ts`;
  output.result({ folder, files: [...files.keys()], test }, () =>
    [
      `${folder}: ${[...files.keys()].join(', ')}`,
      `test it:  ${test}`,
      `run it:   npm start -- --no-sample --handlers ./${name}/handler.ts`,
      `          npx rollouts run --handlers ./${name}/handler.ts --handler ${name} --tasks ${name}/tasks.jsonl`,
    ].join('\n'),
  );
  return 0;
}

function packageOf(name: string): string {
  const content = {
    name,
    private: true,
    type: 'module',
    scripts: { test: 'node --import tsx --test' },
    devDependencies: { tsx: '4.23.15' },
    dependencies: { 'durable-rollouts': `file:${PROJECT_ROOT}` },
  };
  return `${JSON.stringify(content, undefined, 2)}\n`;
}
