import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { PythonPools } from '../../activities/grading/python-pools.ts';
import { builtIn, HandlerRegistry } from '../../activities/handlers/registry.ts';
import { rolloutIdOf } from '../../client/batch.ts';
import { type BadLine, readTasks } from '../../client/tasks-file.ts';
import { loadTools } from '../../config/tools.ts';
import { visibilityQuery } from '../../contracts/filter.ts';
import { RolloutId } from '../../contracts/request.ts';

const python = new PythonPools(() => loadTools().python);
const registry = new HandlerRegistry(builtIn(), python);
let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tasks-'));
});
after(() => {
  python.close();
  return rm(folder, { recursive: true });
});

async function read(text: string | Buffer, handler = 'math') {
  const file = path.join(folder, 'set.jsonl');
  await writeFile(file, text);
  const bad: BadLine[] = [];
  const tasks = [];
  for await (const task of readTasks(file, handler, registry, (line) => bad.push(line))) {
    tasks.push(task);
  }
  return { tasks, bad };
}

const good = '{"question":"1+1?","answer":"#### 2"}';

test('a bad line is named with file, line, field and what was expected, and stops nothing', async () => {
  const lines = [
    good,
    '{"question":"1+1?"}',
    'no json',
    '[1]',
    '{"question":5,"answer":"1"}',
    '{"question":"q","answer":"no\\nnumber"}',
    '',
    good,
  ];
  const { tasks, bad } = await read(lines.join('\n'));
  assert.deepEqual(
    tasks.map((task) => task.id),
    ['set-1', 'set-8'],
  );
  assert.deepEqual(
    bad.map(({ line }) => line),
    [2, 3, 4, 5, 6],
  );
  const problems = bad.map(({ problem }) => problem);
  assert.match(problems[0] ?? '', /answer: expected an answer or a solution/);
  assert.match(problems[1] ?? '', /JSON/);
  assert.match(problems[2] ?? '', /expected a JSON object/);
  assert.match(problems[3] ?? '', /question: .*expected string/);
  assert.match(problems[4] ?? '', /answer: states no answer/);
  assert.match(bad[0]?.file ?? '', /set\.jsonl$/);
});

test('ids of the data set are used, a repeated one is refused', async () => {
  const { tasks, bad } = await read(
    [
      '{"id":"a","question":"q","answer":"1"}',
      '{"id":7,"problem":"q","answer":2.5}',
      '{"id":"a","question":"q","answer":"3"}',
    ].join('\n'),
  );
  assert.deepEqual(
    tasks.map((task) => task.id),
    ['a', '7'],
  );
  assert.match(bad[0]?.problem ?? '', /"a" is line 1's/);
});

test('a byte order mark is no part of the first line, and ids and texts are checked by line', async () => {
  const { tasks, bad } = await read(
    [
      `\uFEFF${good}`,
      `{"id":"${'x'.repeat(300)}","question":"q","answer":"1"}`,
      '{"id":"","question":"q","answer":"1"}',
      '{"question":"half \\ud83d","answer":"1"}',
      '{"question":"whole \\ud83d\\ude00, and \\\\ud800 as text","answer":"1"}',
    ].join('\n'),
  );
  assert.deepEqual(
    tasks.map((task) => task.id),
    ['set-1', 'set-5'],
  );
  assert.deepEqual(
    bad.map(({ line, problem }) => [line, problem.split(':')[0]]),
    [
      [2, 'id'],
      [3, 'id'],
      [4, 'a text holds half of a surrogate pair, which no tokenizer takes'],
    ],
  );
});

test('what is not UTF-8 is named, and a line separator within a text ends no row', async () => {
  const { tasks, bad } = await read(
    Buffer.concat([
      Buffer.from('{"question":"Café\u2028\u0085?","answer":"1"}\n'),
      Buffer.from('{"question":"Café?","answer":"2"}\n', 'latin1'),
      Buffer.from('{"question":"q","answer":"3"}\r\n'),
    ]),
  );
  assert.deepEqual(
    tasks.map(({ data }) => data.question),
    ['Café\u2028\u0085?', 'q'],
  );
  assert.deepEqual(
    bad.map(({ line, problem }) => [line, problem]),
    [[2, 'is not UTF-8']],
  );
});

test('an unknown handler and a missing file are one error each', async () => {
  await assert.rejects(read(good, 'maths'), { type: 'UnknownHandler' });
  const missing = readTasks(path.join(folder, 'none.jsonl'), 'math', registry, () => {});
  await assert.rejects(async () => {
    for await (const _ of missing);
  }, /none\.jsonl/);
});

test('workflow ids are valid, and different tasks never share one', () => {
  const ids = ['plain', 'a b', 'a-b', 'a/b', 'ü', 'x'.repeat(300), 'x'.repeat(301)].map((task) =>
    rolloutIdOf('batch', task, 0),
  );
  for (const id of ids) assert.ok(RolloutId.safeParse(id).success, id);
  assert.equal(new Set(ids).size, ids.length);
  assert.equal(ids[0], 'batch:plain:0');
});

test('a quote in a filter cannot end the query', () => {
  assert.equal(
    visibilityQuery({ batchId: "x' OR '1'='1" }),
    "WorkflowType = 'rollout' AND BatchId = 'x'' OR ''1''=''1'",
  );
});
