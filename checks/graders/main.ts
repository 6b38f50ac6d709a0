import { mkdir, readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { PythonPools } from '../../activities/grading/python-pools.ts';
import { builtIn, HandlerRegistry } from '../../activities/handlers/registry.ts';
import { GradingHost } from '../../client/grading-host.ts';
import { gradeRecorded } from '../../client/recorded.ts';
import { type Fields, rowsOf } from '../../client/rows.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import { makeInstances } from '../../examples/swe/make.ts';
import { attacksOn } from './attacks.ts';
import { nearMissesOf, spellingsOf } from './spellings.ts';

/** An answer and what it is worth. */
interface Case {
  readonly handler: string;
  readonly data: Fields;
  readonly response: string;
  readonly reward: 0 | 1;
  /** Names it where it is graded wrongly. */
  readonly what: string;
}

const AT_ONCE = 4;
const SECONDS = 600;
const python = new PythonPools(() => loadTools().python);
const registry = new HandlerRegistry(builtIn(), python);
const config = loadConfig();
const host = new GradingHost(config);
let grades = 0;

/** Grades cases, four at a time; says how many were graded wrongly, and the first of them. */
async function check(title: string, cases: readonly Case[]): Promise<boolean> {
  const started = performance.now();
  const wrong: string[] = [];
  let next = 0;
  const lane = async () => {
    for (let one = cases[next++]; one; one = cases[next++]) {
      const task = { handler: one.handler, id: 'check', data: { ...one.data } };
      const id = `check-${++grades}`;
      const signal = new AbortController().signal;
      const options = {
        registry,
        sandboxes: host.client,
        id,
        deadlines: { evaluateSeconds: SECONDS },
        signal,
      };
      const said = await gradeRecorded(task, one.response, options).then(({ total }) => total, String);
      if (said !== one.reward) wrong.push(`${one.what}: ${said} instead of ${one.reward}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const right = cases.filter(({ reward }) => reward === 1).length;
  const counts = `${right} right and ${cases.length - right} wrong answers in ${seconds} s`;
  process.stdout.write(
    `${wrong.length === 0 ? 'ok' : 'NOT OK'}  ${title}: ${counts}, ${wrong.length} graded wrongly\n`,
  );
  for (const line of wrong.slice(0, 10)) process.stdout.write(`    ${line}\n`);
  return wrong.length === 0;
}

async function rows(file: string): Promise<Fields[]> {
  const all: Fields[] = [];
  for await (const row of rowsOf(file)) if ('fields' in row) all.push(row.fields);
  return all;
}

function humanEval(problems: readonly Fields[]): Case[] {
  return problems.flatMap((data) => {
    const { prompt, canonical_solution, task_id } = data as Record<string, string>;
    const answer = (body: string) => `\`\`\`python\n${prompt}${body}\n\`\`\`\n`;
    return [
      {
        ...{ handler: 'code', data },
        response: answer(canonical_solution ?? ''),
        reward: 1,
        what: `${task_id}`,
      },
      {
        ...{ handler: 'code', data },
        response: answer('    return None\n'),
        reward: 0,
        what: `${task_id}, nothing`,
      },
    ] as const;
  });
}

function maths(problems: readonly Fields[], goldOf: (row: Fields) => string): Case[] {
  return problems.flatMap((data) => {
    const gold = goldOf(data);
    const cases = (responses: string[], reward: 0 | 1): Case[] =>
      responses.map((response) => ({
        handler: 'math',
        data,
        response,
        reward,
        what: `${gold} / ${response}`,
      }));
    return [...cases(spellingsOf(gold), 1), ...cases(nearMissesOf(gold), 0)];
  });
}

function choices(problems: readonly Fields[]): Case[] {
  return problems.flatMap((data) => {
    const { choices: texts, answer } = data as { choices: string[]; answer: number };
    const letter = (index: number) => String.fromCharCode(65 + index);
    const right = letter(answer);
    const others = texts.flatMap((_, index) => (index === answer ? [] : [letter(index)]));
    const cases = (responses: string[], reward: 0 | 1): Case[] =>
      responses.map((response) => ({
        handler: 'stem',
        data,
        response,
        reward,
        what: `${right} / ${response}`,
      }));
    return [
      ...cases([`\\boxed{${right}}`, `The answer is (${right}).`, right, `**Answer:** ${right}. because`], 1),
      ...cases(
        [...others.map((other) => `\\boxed{${other}}`), `${right} or ${others[0]}`, 'None of them.'],
        0,
      ),
    ];
  });
}

async function software(): Promise<Case[]> {
  const folder = path.join(config.derived.stateFolder, 'swe');
  await mkdir(folder, { recursive: true });
  const instances = await makeInstances(folder, host.client);
  const cases = instances.map(async (data): Promise<Case[]> => {
    const { instance_id, patch, repository, repo } = data as Record<string, string>;
    const file = (await readdir(repository as string)).includes(`${repo}.py`)
      ? `${repo}.py`
      : `${repo}/__init__.py`;
    const [firstLine = ''] = (await readFile(path.join(repository as string, file), 'utf8')).split('\n');
    const attacks = Object.entries(attacksOn(file, firstLine));
    return [
      { handler: 'swe', data, response: patch as string, reward: 1, what: `${instance_id}, the reference` },
      ...attacks.map(
        ([what, response]): Case => ({
          handler: 'swe',
          data,
          response,
          reward: 0,
          what: `${instance_id}, ${what}`,
        }),
      ),
    ];
  });
  return (await Promise.all(cases)).flat();
}

async function main(data: string | undefined): Promise<boolean> {
  if (data === undefined) throw new Error('use: npm run check:graders -- DATA_FOLDER');
  const file = (name: string) => rows(path.join(data, name));
  const results = [
    await check('HumanEval', humanEval(await file('HumanEval.jsonl.gz'))),
    await check(
      'GSM8K',
      maths(await file('gsm8k-test-200.jsonl'), (row) => String(row.answer).split('####')[1]?.trim() ?? ''),
    ),
    await check(
      'AMC',
      maths(await file('amc23-20.jsonl'), (row) => String(row.answer)),
    ),
    await check('MMLU', choices(await file('mmlu-stem-sample.jsonl'))),
    await check('software engineering', await software()),
  ];
  return results.every(Boolean);
}

try {
  process.exitCode = (await main(process.argv[2])) ? 0 : 1;
} finally {
  python.close();
  await host.close();
}
