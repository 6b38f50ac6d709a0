import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { parquetWriteFile } from 'hyparquet-writer';
import { loadHandlers } from '../../activities/handlers/registry.ts';
import { gradeCommand } from '../../client/commands/grade.ts';
import { handlerCommand } from '../../client/commands/handler-init.ts';
import { handlersCommand } from '../../client/commands/handlers.ts';
import { tasksCommand } from '../../client/commands/tasks.ts';
import { rowsOf } from '../../client/rows.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'grade-'));
});
after(() => rm(folder, { recursive: true }));

const file = async (name: string, content: string | Uint8Array) => {
  const where = path.join(folder, name);
  await writeFile(where, content);
  return where;
};

function listening() {
  const notes: string[] = [];
  const results: unknown[] = [];
  const output = {
    json: true,
    note: (line: string) => void notes.push(line),
    result: (value: unknown) => void results.push(value),
  };
  return { notes, results, output };
}

const lines = (values: unknown[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');
const TASKS = [
  { question: '2+2?', answer: '#### 4' },
  { id: 'half', problem: 'Half of 1?', answer: '\\frac{1}{2}' },
  { id: 'half', problem: 'Again?', answer: '1' },
  { id: 'bad', problem: 'What?', answer: '\\frac{1}{' },
];

test('recorded answers are graded in their order; what is no answer or of no task fails by itself', async () => {
  const responses = lines([
    { task_id: 1, response: 'It is \\boxed{4}.' },
    { task_id: 'half', response: 'The final answer is 0.5' },
    { task_id: 'half', response: '\\boxed{2}' },
    { task_id: 'bad', response: '\\boxed{1}' },
    { task_id: 'half' },
  ]);
  const { notes, output } = listening();
  const out = path.join(folder, 'graded.jsonl');
  const options = { handler: 'math', concurrency: 2, out };
  const tasks = await file('tasks.jsonl', lines(TASKS));
  const code = await gradeCommand(
    loadConfig(),
    { ...options, tasks, responses: await file('responses.jsonl', `${responses}no json\n`) },
    output,
  );
  assert.equal(code, 1);
  const graded = (await readFile(out, 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const correct = (reward: number) => ({ reward, parts: { correct: reward } });
  assert.deepEqual(graded.slice(0, 3), [
    { task_id: '1', line: 1, ...correct(1) },
    { task_id: 'half', line: 2, ...correct(1) },
    { task_id: 'half', line: 3, ...correct(0) },
  ]);
  assert.deepEqual(
    graded.slice(3).map(({ task_id, line, failure }) => [task_id, line, failure.type]),
    [
      ['bad', 4, 'InvalidRequest'],
      [null, 5, 'InvalidRequest'],
      [null, 6, 'InvalidRequest'],
    ],
  );
  assert.match(notes.join('\n'), /tasks\.jsonl:3: id: "half" is line 2's/);
  assert.match(notes.join('\n'), /tasks\.jsonl:4: task bad: answer: Math-Verify cannot read/);
  assert.equal(notes.at(-1), '3 graded, mean reward 0.6667; 3 failed; 2 malformed tasks');
  // What is read is not written over.
  await symlink(tasks, path.join(folder, 'tasks-too.jsonl'));
  for (const name of ['tasks-too.jsonl', 'responses.jsonl']) {
    const again = { ...options, tasks, responses: path.join(folder, 'responses.jsonl') };
    const written = { ...again, out: path.join(folder, name) };
    await assert.rejects(gradeCommand(loadConfig(), written, output), {
      ...{ type: 'InvalidRequest', message: /is a file that is read/ },
    });
  }
  assert.equal(await readFile(tasks, 'utf8'), lines(TASKS));
});

test('a file of tasks is checked without running them; a Parquet file as a JSONL file is', async () => {
  const parquet = path.join(folder, 'tasks.parquet');
  parquetWriteFile({
    filename: parquet,
    columnData: [
      { name: 'id', data: [7n, 8n, 8n], type: 'INT64' },
      { name: 'question', data: ['1+1?', '1+2?', '1+3?'], type: 'STRING' },
      { name: 'answer', data: ['2', '?', '4'], type: 'STRING' },
      { name: 'level', data: [null, 'a', null], type: 'STRING' },
    ],
  });
  const seen = [];
  for await (const row of rowsOf(parquet)) seen.push(row);
  assert.deepEqual(seen[0], { line: 1, fields: { id: 7, question: '1+1?', answer: '2' } });
  const zipped = await file('tasks.jsonl.gz', gzipSync(lines([{ ...TASKS[1], x: '\ud800' }, TASKS[0]])));
  for (const [tasks, good, bad] of [
    [parquet, 2, [2]],
    [zipped, 1, [1]],
  ] as const) {
    const { results, output } = listening();
    assert.equal(await tasksCommand(loadConfig(), ['check', tasks], 'math', output), 1);
    const [result] = results as [{ tasks: number; bad: { line: number }[] }];
    assert.deepEqual([result.tasks, result.bad.map(({ line }) => line)], [good, bad]);
  }
  await assert.rejects(
    tasksCommand(
      loadConfig(),
      ['check', await file('cut.parquet', 'PAR1 and no more')],
      'math',
      listening().output,
    ),
    { type: 'InvalidRequest', message: /cut\.parquet: / },
  );
});

test('a new task type is written with a test that passes', async () => {
  const before = process.cwd();
  const inside = await mkdtemp(path.join(PROJECT_ROOT, 'test', 'own-'));
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const run = async (...[command, ...argv]: [string, ...string[]]) =>
    (await promisify(execFile)(command, argv, { env })).stdout;
  const init = async (...names: string[]) => {
    const { results, output } = listening();
    for (const name of names) assert.equal(await handlerCommand(['init', name], output), 0);
    return (results[0] as { files: string[] }).files;
  };
  try {
    process.chdir(inside);
    const files = ['handler.ts', 'prompt.md', 'handler.test.ts', 'tasks.jsonl'];
    assert.deepEqual(await init('my-task'), files);
    for (const name of ['my-task', '../up', 'A b', 'math', '', 'durable-rollouts'])
      await assert.rejects(init(name), { type: 'InvalidRequest' }, name);
    assert.match(
      await run(process.execPath, '--import', 'tsx', '--test', 'my-task/handler.test.ts'),
      /pass 2\n/,
    );
    // Outside the checkout it is a package; what it needs lies where `npm install` puts it.
    process.chdir(folder);
    assert.deepEqual(await init('my-task'), [...files, 'package.json', 'tsconfig.json']);
    const { dependencies, devDependencies } = JSON.parse(await readFile('my-task/package.json', 'utf8'));
    assert.deepEqual(dependencies, { 'durable-rollouts': `file:${PROJECT_ROOT}` });
    await mkdir('my-task/node_modules/.bin', { recursive: true });
    await symlink(PROJECT_ROOT, 'my-task/node_modules/durable-rollouts');
    for (const name of Object.keys(devDependencies))
      await symlink(path.join(PROJECT_ROOT, 'node_modules', name), `my-task/node_modules/${name}`);
    await symlink('../typescript/bin/tsc', 'my-task/node_modules/.bin/tsc');
    const [tested] = await Promise.all([
      run('npm', '--prefix', 'my-task', 'test'),
      run('npm', '--prefix', 'my-task', 'run', 'check'),
    ]);
    assert.match(tested, /pass 2\n/);
    await mkdir('node_modules');
    await symlink('../my-task', 'node_modules/my-task');
    const { id, ...example } = JSON.parse(await readFile('my-task/tasks.jsonl', 'utf8'));
    assert.equal(id, 'first');
    for (const name of ['my-task', './my-task/handler.ts', 'my-task/handler.ts']) {
      const registry = await loadHandlers({ handlers: [name] }, { python: () => loadTools().python });
      assert.deepEqual(registry.get('my-task').example, example);
    }
  } finally {
    process.chdir(before);
    await rm(inside, { recursive: true });
  }
});

test('kinds of task are listed with their fields and an example', async () => {
  const said: string[] = [];
  const output = {
    json: false,
    note: () => {},
    result: (_: unknown, say: () => string) => void said.push(say()),
  };
  assert.equal(await handlersCommand(loadConfig(), output), 0);
  for (const line of [
    'math: Maths problems',
    'task     question?, problem?, answer?, solution?',
    'task     HumanEval: prompt, entry_point, test\n',
    'task     GPQA: Question, Correct Answer, Incorrect Answer 1',
    'task     SWE-bench: instance_id, repo, base_commit?, problem_statement, patch?, test_patch, FAIL_TO_PASS, PASS_TO_PASS,',
    'example  {"question":"What is standard gravity?"',
  ])
    assert.ok(said[0]?.includes(line), `${line} in ${said[0]}`);
});
