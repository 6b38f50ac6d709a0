import assert from 'node:assert/strict';
import { test } from 'node:test';
import { processIds, processInfo } from '../../workers/sandbox-host/processes.ts';
import { until } from '../support/until.ts';
import { fenced, startGrader, verdictsOf } from './grader.ts';

const apps = (tests: [string, string][], more: object = {}) => ({
  question: 'Q',
  input_output: JSON.stringify({
    inputs: tests.map(([input]) => input),
    outputs: tests.map(([, output]) => output),
  }),
  ...more,
});
const SUM = apps([
  ['1 2\n', '3\n'],
  ['20 22\n', '42\n'],
]);
const ONE = apps([['1 2\n', '3\n']], { time_limit: '0.2 seconds', memory_limit: '128 megabytes' });
const GOOD = 'print(sum(map(int, input().split())))';

test('programs are judged test by test, as judges say it', async (t) => {
  const { grade } = await startGrader(t);
  const cases: [string, object, string, string, Record<string, number>][] = [
    ['is right', SUM, 'python', GOOD, { AC: 2 }],
    ['is right once', SUM, 'python', 'print(3)', { AC: 1, WA: 1 }],
    [
      'reads bytes',
      ONE,
      'python',
      'import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))',
      { AC: 1 },
    ],
    [
      'reads bytes line by line',
      ONE,
      'python',
      'import sys\nr = sys.stdin.buffer.readline\na = r()\nassert r() == b""\nprint(sum(map(int, a.split())))',
      { AC: 1 },
    ],
    [
      'reads in a thread, with an alarm in the main one',
      ONE,
      'python',
      `import signal, threading\nsignal.alarm(60)\nt = threading.Thread(target=lambda: print(sum(map(int, input().split()))))\nt.start()`,
      { AC: 1 },
    ],
    [
      'leaves a child that holds its output',
      ONE,
      'python',
      `import subprocess\n${GOOD}\nsubprocess.Popen(["sleep", "1000"])`,
      { AC: 1 },
    ],
    ['raises', ONE, 'python', 'raise SystemExit(3)', { RE: 1 }],
    ['does not compile', ONE, 'python', 'print(', { CE: 1 }],
    ['says nothing', ONE, 'python', '', { WA: 1 }],
    ['is too long', ONE, 'python', `${GOOD}\n${'#'.repeat(300_000)}`, { CE: 1 }],
    ['hangs', ONE, 'python', 'while True: pass', { TLE: 1 }],
    ['waits for what never comes', ONE, 'python', 'import os\nos.read(os.pipe()[0], 1)', { TLE: 1 }],
    [
      'grows',
      ONE,
      'python',
      'x = bytearray(400 * 1024 ** 2)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(3)',
      { MLE: 1 },
    ],
    ['floods', ONE, 'python', 'while True: print("3" * 1000)', { WA: 1 }],
    [
      'is right',
      SUM,
      'cpp',
      '#include <cstdio>\nint main() { int a, b; scanf("%d%d", &a, &b); printf("%d", a + b); }',
      { AC: 2 },
    ],
    ['does not compile', SUM, 'cpp', 'int main() { return x; }', { CE: 2 }],
    ['is made large', ONE, 'cpp', 'int a[20000000] = {1};\nint main() { return a[0] - 1; }', { CE: 1 }],
    ['includes without an end', ONE, 'cpp', '#include "/dev/zero"\nint main() {}', { CE: 1 }],
  ];
  await Promise.all(
    cases.map(async ([what, task, language, program, verdicts]) => {
      const reward = await grade('code-fraction', task as typeof SUM, fenced(language, program));
      assert.deepEqual(verdictsOf(reward), verdicts, `${language} that ${what}`);
      assert.equal(reward.total, (verdicts.AC ?? 0) / (reward.parts.tests ?? 0));
    }),
  );
  assert.equal((await grade('code', SUM, fenced('python', 'print(3)'))).total, 0);
  // The host runs in this process: whatever it has killed it has also waited for.
  const zombies = () =>
    processIds().filter((pid) => {
      const found = processInfo(pid);
      return found?.zombie && found.parent === process.pid;
    });
  await until(() => zombies().length === 0, 'processes that ended are waited for');
});

test('a program finds its input and itself, and no expected output', async (t) => {
  const { grade } = await startGrader(t);
  const marker = 'expected-7f3a';
  const search = `
import glob, os
found = []
names = [os.path.join(root, name) for folder in ('/workspace', '/tmp', '/run', os.path.expanduser('~'))
    for root, _, files in os.walk(folder) for name in files]
for name in names + glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ'):
    try:
        if not os.path.isfile(name): continue
        with open(name, 'rb') as file: data = file.read(1 << 20)
    except OSError: continue
    if 'expected' in name or b'7f3a' in data and not name.endswith('solution.py'): found.append(name)
print(found or sorted(os.listdir('.')))`;
  const { total } = await grade('code', apps([['1', "['solution.py']\n"]]), fenced('python', search));
  assert.equal(total, 1);
  const hidden = await grade('code', apps([['1', `${marker}\n`]]), fenced('python', search));
  assert.equal(hidden.total, 0);
});

test('a problem’s own checker decides where it has one; one that crashes has failed', async (t) => {
  const { grade } = await startGrader(t);
  const task = (generated_checker: string) => ({
    description: 'Print two numbers with this sum.',
    official_tests: [
      { input: '5\n', output: '2 3\n' },
      { input: '9\n', output: '4 5\n' },
    ],
    generated_checker,
  });
  const checker = `
import sys
given, _, answer = (open(name).read() for name in sys.argv[1:])
numbers = list(map(int, answer.split()))
print("not two:", *numbers) if len(numbers) != 2 else print(int(sum(numbers) == int(given)))`;
  const right = fenced('python', 'print(1, int(input()) - 1)');
  assert.equal((await grade('code', task(checker), right)).total, 1);
  assert.deepEqual(verdictsOf(await grade('code-fraction', task(checker), fenced('python', 'print(2, 3)'))), {
    AC: 1,
    WA: 1,
  });
  const hostile = fenced('python', 'print(*(["9" * 5000, "x"] if input() == "5" else [1]))');
  const confused = await grade('code-fraction', task(checker), hostile);
  assert.deepEqual(
    verdictsOf(confused),
    { WA: 2 },
    'a checker that only this crashes, or repeats what it is given',
  );
  await assert.rejects(grade('code', task('raise ValueError("no")'), right), {
    type: 'GraderFailed',
    message: /checker: [\s\S]*ValueError: no/,
  });
});
