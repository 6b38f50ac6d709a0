import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { checkedDeadlines } from '../../activities/handlers/checked.ts';
import { math } from '../../activities/handlers/math/math.ts';
import { parsePrompt } from '../../activities/handlers/prompt-file.ts';
import { HandlerRegistry, loadHandlers } from '../../activities/handlers/registry.ts';
import { sweHandler } from '../../activities/handlers/swe/swe.ts';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';

const python = () => loadTools().python;
let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'handlers-'));
});
after(() => rm(folder, { recursive: true }));

test('a handler of one’s own is loaded from its file and checks its tasks', async () => {
  const registry = await loadHandlers(
    { handlers: ['./examples/handlers/count-lines.ts'] },
    {
      folder: PROJECT_ROOT,
      python,
    },
  );
  assert.deepEqual(
    registry.list().map(({ name }) => name),
    ['code', 'code-fraction', 'count-lines', 'math', 'math-plain', 'stem', 'swe'],
  );
  const { data } = registry.open({ handler: 'count-lines', id: 'a', data: { text: 'x\n' } });
  assert.deepEqual(data, { text: 'x\n' });
  assert.throws(() => registry.open({ handler: 'count-lines', id: 'a', data: { text: '' } }), {
    type: 'InvalidTask',
    message: /task a: text: /,
  });
});

test('every example of a handler is a task of it', async () => {
  const examples = ['count-lines', 'mini-swe-agent'].map((name) => `./examples/handlers/${name}.ts`);
  const registry = await loadHandlers({ handlers: examples }, { folder: PROJECT_ROOT, python });
  for (const { name, example } of registry.list()) {
    registry.open({ handler: name, id: 'example', data: example });
  }
});

test('a handler asks for the time that its tasks take', () => {
  const asks = (handler: string, data: object) => {
    const opened = new HandlerRegistry().open({ handler, id: 'a', data: data as Record<string, unknown> });
    return checkedDeadlines(opened.handler.deadlines?.(opened.data) ?? {});
  };
  const tests = (count: number) => ({
    question: 'Q',
    input_output: JSON.stringify({ inputs: Array(count).fill('1'), outputs: Array(count).fill('1') }),
    time_limit: '1 second',
  });
  // Four at a time, each four seconds of Python's processor time: 26 s on the clock.
  assert.deepEqual(asks('code', tests(1)), { evaluateSeconds: 240 + 26 });
  assert.deepEqual(asks('code', tests(9)), { evaluateSeconds: 240 + 3 * 26 });
  assert.deepEqual(asks('math', { question: 'q', answer: '1' }), { evaluateSeconds: 180 });
  assert.deepEqual(asks('stem', { question: 'q', answer: 'a' }), {});
  assert.deepEqual(asks('stem', { question: 'q', answer: 'a', rubric: 'r' }), { evaluateSeconds: 300 });
  assert.deepEqual(asks('swe', sweHandler().example), { runSeconds: 1800, evaluateSeconds: 1800 });
  for (const wrong of [{ evaluateSeconds: 0 }, { evaluateSeconds: '60' }, { initSeconds: 5 }]) {
    assert.throws(() => checkedDeadlines(wrong), { type: 'HandlerFailed', message: /^deadlines: / });
  }
});

test('a module that is no handler is refused with what is missing', async () => {
  const load = async (name: string, text: string) => {
    await writeFile(path.join(folder, name), text);
    return loadHandlers({ handlers: [`./${name}`] }, { folder, python });
  };
  await assert.rejects(load('a.mjs', 'export default {}'), /a\.mjs: its default export has no name/);
  await assert.rejects(load('b.mjs', 'export default { name: "b" }'), /has no schema/);
  await assert.rejects(load('c.mjs', 'throw new Error("broken")'), /c\.mjs: broken/);
  const without = `export default { name: 'e', schema: { safeParse() {} }, evaluate() {} REST }`;
  await assert.rejects(load('e.mjs', without.replace('REST', ', tools() {}')), /has no prompt\(\)/);
  await assert.rejects(load('f.mjs', without.replace('REST', ', run: 1')), /has no run\(\)/);
  await load('g.mjs', without.replace('REST', ', run() {}'));
  await assert.rejects(loadHandlers({ handlers: ['./none.mjs'] }, { folder, python }), /none\.mjs/);
  const twice = `const h = { name: 'math', schema: { safeParse() {} }, tools() {}, prompt() {}, evaluate() {} }; export default h`;
  await assert.rejects(load('d.mjs', twice), /two handlers are called math/);
});

test('a prompt file is messages by role, with values put in literally', () => {
  const messages = parsePrompt('# system\n\nBe {{how}}.\n\n# user\n\n{{what}}\n', {
    how: 'brief',
    what: '# user $& {{how}}',
  });
  assert.deepEqual(messages, [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: '# user $& {{how}}' },
  ]);
  assert.throws(() => parsePrompt('# user\n{{missing}}', {}), /\{\{missing\}\}/);
});

test('GSM8K, MATH and AMC lines are maths tasks as they are; the gold answer is not in the prompt', async () => {
  const sandbox = () => assert.fail('an answer is graded without a sandbox');
  const signal = AbortSignal.timeout(60_000);
  const { python: programs } = await loadHandlers({ handlers: [] }, { python });
  for (const [data, answer, reward] of [
    [{ question: 'Two and two?', answer: '2+2 = <<2+2=4>>4\n#### 4' }, '4', 1],
    [{ problem: 'Half?', solution: 'It is $\\boxed{\\frac{1}{2}}$.', level: 'Level 1' }, '0.5', 1],
    [{ id: 0, problem: 'Miles?', answer: 27.0, url: 'x' }, '27', 1],
    [{ problem: 'Miles?', answer: 27 }, '28', 0],
    [{ problem: 'Miles?', answer: 27 }, null, 0],
  ] as const) {
    const task = math.schema.parse(data);
    assert.deepEqual(
      await math.evaluate({
        task,
        outcome: { answer },
        messages: [],
        sandbox,
        each: sandbox,
        python: programs,
        seconds: 60,
        signal,
      }),
      {
        total: reward,
        parts: { correct: reward },
      },
    );
    const said = ((await math.prompt?.(task)) ?? []).map(({ content }) => content).join('\n');
    assert.ok(said.includes(task.question ?? (task.problem as string)));
    assert.ok(!said.includes('####') && !said.includes('frac'));
  }
});
