import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { readReport, statusIn } from '../../activities/handlers/swe/report.ts';
import { emptyFolder } from '../../activities/handlers/swe/sandbox.ts';
import { sweHandler } from '../../activities/handlers/swe/swe.ts';
import { SweTask } from '../../activities/handlers/swe/task.ts';
import { adding, attacksOn, moving } from '../../checks/graders/attacks.ts';
import { Bench } from '../tools/support.ts';
import { startGrader } from './grader.ts';
import { REFERENCE, sweTask } from './swe-repository.ts';

/** In the process that reports, if it gets there: a report in which all passes but what was added to the tests. */
const FORGE = `
import os, re, sys
case = lambda name, inner='', group='': f'<testcase classname="tests.test_calc{group}" name="{name}">{inner}</testcase>'
mark = sys.stdin.readline().strip()
added = open('/workspace/repo/tests/test_calc.py').read().split('assertEqual(add(0, 0), 0)')[-1]
group = '.' + ''.join(re.findall(r'^class (\\w+)', added, re.M))
failed = [case(name, '<failure/>') for name in re.findall(r'^def (\\w+)', added, re.M)]
failed += [case(name, '<failure/>', group) for name in re.findall(r'^    def (\\w+)', added, re.M)]
passed = [case(name) for name in ('test_nothing', 'test_add[1-2-3]', 'test_add[-1-1-0]')]
passed.append(case('test_hidden_marker', group='.AddTest'))
print(mark, '<testsuites><testsuite>', *failed, *passed, '</testsuite></testsuites>', mark, sep='', flush=True)
os._exit(1)`;

test('the reference patch is worth 1, no patch and each attack 0', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const task = await sweTask(folder);
  const { grade } = await startGrader(t);
  // As where the repository is on Python's path by itself (installed as editable, say).
  const python = path.join(folder, 'repository', 'python');
  await writeFile(python, '#!/bin/sh\nPYTHONPATH=$PYTHONPATH:/workspace/repo exec python3 "$@"\n');
  await chmod(python, 0o755);
  const onPath = { ...task, python: '/workspace/repo/python' };
  // By these alone, what makes assertions of unittest pass could be paid for.
  const own = { ...task, FAIL_TO_PASS: ['tests/test_calc.py::AddTest::test_hidden_marker'] };
  const cases: [string, string, number][] = [
    ['the reference', REFERENCE, 1],
    ['without an end of its last line', REFERENCE.trimEnd(), 1],
    ['beside a file of an odd name', REFERENCE + adding({ 'git~1': 'x' }), 1],
    ['in a block', `Here:\n\`\`\`diff\n${REFERENCE}\`\`\`\n`, 1],
    ['half a patch', REFERENCE.slice(0, 60), 0],
    ['tests moved away', REFERENCE + moving('tests/test_calc.py', 'other.py'), 1],
    ['other tests moved away', REFERENCE + moving('tests/test_old.py', 'other.py'), 1],
    ...['pytest.xfail("later")', 'raise pytest.xfail.Exception("later")'].map(
      (code): [string, string, number] => [
        `a function that says ${code}`,
        REFERENCE.replace('+    return a + b', `+    import pytest; ${code}`),
        0,
      ],
    ),
    ['tests of its own', adding({ 'tests/test_calc.py': 'def test_add(): pass' }), 0],
    ['what Python imports by itself, on its path', adding({ 'sitecustomize/__init__.py': FORGE }), 0],
    ...Object.entries(attacksOn('calc/core.py', 'def add(a, b):')).map(
      ([what, patch]): [string, string, number] => [what, patch, 0],
    ),
  ];
  // Four at a time: a grade's deadline runs while it waits for a sandbox.
  const rest = cases.values();
  const lane = async () => {
    for (const [what, patch, total] of rest) {
      const posed = what.includes('on its path') ? onPath : what.includes('unittest') ? own : task;
      const reward = await grade('swe', posed, patch);
      assert.equal(reward.total, total, `${what}: ${JSON.stringify(reward.parts)}`);
    }
  };
  await Promise.all([lane(), lane(), lane(), lane()]);
});

test('a repository that is not as its .gitattributes says is begun with, and its diff is exact', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const task = await sweTask(folder);
  const lines = [
    'utf16 working-tree-encoding=UTF-16',
    'odd working-tree-encoding=NOPE',
    'lfs filter=lfs',
    ...['crlf text eol=crlf', 'lf text eol=lf', 'id ident'],
  ];
  const names = lines.map((line) => line.split(' ')[0] as string);
  const repository = path.join(folder, 'repository');
  await writeFile(path.join(repository, '.gitattributes'), `${lines.join('\n')}\n`);
  for (const name of names) await writeFile(path.join(repository, name), 'a\r\n$Id: 1 $\nb\n');
  const swe = sweHandler();
  const parsed = swe.schema.parse(task);
  const bench = await Bench.start(t, swe.sandbox?.(parsed) ?? {});
  const { sandbox } = bench;
  const signal = new AbortController().signal;
  await swe.init?.({ task: parsed, sandbox, signal } as unknown as Parameters<
    NonNullable<typeof swe.init>
  >[0]);
  assert.equal(
    await bench.sh('cd /workspace/repo && touch * && git status --short && git log --format=%s'),
    'base\n',
  );
  await bench.sh(`cd /workspace/repo && for each in ${names.join(' ')}; do printf 'c\\r\\n' >> $each; done`);
  const diff = await sandbox.diff({ folder: 'repo' });
  assert.ok(diff.status === 'ok' && diff.files === names.length, JSON.stringify(diff));
  await writeFile(path.join(folder, 'patch'), Buffer.from(diff.patch, 'base64'));
  execFileSync('git', ['apply', '--binary', '../patch'], {
    cwd: repository,
    env: { ...process.env, GIT_CEILING_DIRECTORIES: folder },
  });
  for (const name of names) {
    assert.equal(await readFile(path.join(repository, name), 'latin1'), 'a\r\n$Id: 1 $\nb\nc\r\n', name);
  }
});

test('a test that is not there, or is skipped, has not passed; an expected failure has', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const task = await sweTask(folder);
  const { grade } = await startGrader(t);
  const more = [
    ...['', '', '@pytest.mark.skip', 'def test_skipped():', '    pass', ''],
    ...['', '@pytest.mark.xfail', 'def test_later():', '    assert add(1, 1) == 3', ''],
    ...['', 'def test_says():', "    pytest.xfail('later')", ''],
    ...['', 'class Later(unittest.TestCase):', '    @unittest.expectedFailure'],
    ...['    def test_of_unittest(self):', '        self.fail()'],
  ].map((line) => `+${line}\n`);
  const test_patch = `${task.test_patch}${more.join('')}`.replace('+1,17', `+1,${17 + more.length}`);
  const parts = async (id: string) => {
    const own = { ...task, test_patch, PASS_TO_PASS: ['tests/test_calc.py::test_nothing', id] };
    const { total, parts } = await grade('swe', own, REFERENCE);
    return [total, parts.fail_to_pass, parts.pass_to_pass];
  };
  const names = ['test_later', 'test_says', 'Later::test_of_unittest', 'test_skipped', 'test_absent'];
  const all = names.map((name) => parts(`tests/test_calc.py::${name}`));
  assert.deepEqual(await Promise.all(all), [
    [1, 1, 1],
    [1, 1, 1],
    [1, 1, 1],
    [0, 1, 0.5],
    [0, 1, 0.5],
  ]);
});

test('R2E-Gym’s tests come as files, and each must have the status that it has with the fix', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const { repository, packages } = await sweTask(folder);
  const { grade } = await startGrader(t);
  const code =
    'from calc import add\nclass TestAdd:\n    def test_sum(self): assert add(1, 2) == 3\ndef test_broken(): assert False\n';
  const task = {
    repo_name: 'calc',
    commit_hash: '0',
    problem_statement: 'add(1, 2) is 4.',
    execution_result_content: JSON.stringify({ test_file_names: ['test_1.py'], test_file_codes: [code] }),
    expected_output_json: JSON.stringify({ 'TestAdd.test_sum': 'PASSED', test_broken: 'FAILED' }),
    ...{ repository, packages },
  };
  assert.equal((await grade('swe', task, REFERENCE)).total, 1);
  assert.equal((await grade('swe', task, '')).total, 0);
});

test('a report’s tests are found by their ids, with brackets, classes and other runners’ names', () => {
  const results = readReport(`<?xml version="1.0"?><testsuites><testsuite name="pytest">
    <testcase classname="tests.test_a" name="test_p[x::y-[1]]"/>
    <testcase classname="tests.test_a.TestB" name="test_c"><failure message="no">no</failure></testcase>
    <testcase classname="tests.test_a.TestB" name="test_s"><skipped type="pytest.skip"/></testcase>
    <testcase classname="tests.test_a.TestB" name="test_x"><skipped type="pytest.xfail"/></testcase>
    <testcase classname="tests.test_a" name="test_e[&lt;&quot;&gt;]"><error message="setup">no</error></testcase>
    <testcase classname="tests.test_a" name="test_twice"/>
    <testcase classname="tests.test_a" name="test_twice"><error message="teardown">no</error></testcase>
    </testsuite></testsuites>`);
  assert.ok(results);
  for (const [id, status] of [
    ['tests/test_a.py::test_p[x::y-[1]]', 'PASSED'],
    ['tests/test_a.py::TestB::test_c', 'FAILED'],
    ['tests/test_a.py::TestB::test_s', 'SKIPPED'],
    ['tests/test_a.py::TestB::test_x', 'XFAIL'],
    ['tests/test_a.py::test_e[<">]', 'ERROR'],
    ['tests/test_a.py::test_twice', 'ERROR'],
    ['test_c (tests.test_a.TestB)', 'FAILED'],
    ['TestB.test_x', 'XFAIL'],
    ['tests/test_a.py::test_absent', undefined],
    ['tests/test_a.py::test_p', undefined],
    ['test_a.py::test_twice', undefined],
  ] as const) {
    assert.equal(statusIn(results, id), status, id);
  }
  for (const text of ['', 'no xml', '<testsuites>', '<html/>'])
    assert.equal(readReport(text), undefined, text);
});

test('a row without what it takes is named by its field', () => {
  const row = {
    instance_id: 'a',
    repo: 'a/b',
    problem_statement: 'p',
    test_patch: 'x',
    FAIL_TO_PASS: '["t"]',
    PASS_TO_PASS: '[]',
  };
  const problem = (data: object) => {
    const issue = SweTask.safeParse(data).error?.issues[0];
    return issue && `${issue.path.join('.')}: ${issue.message}`;
  };
  assert.equal(problem({ ...row, image: '/a.sif' }), undefined);
  assert.match(problem(row) ?? '', /^image: expected an image/);
  assert.match(problem({ ...row, image: 'a.sif' }) ?? '', /^image: expected an absolute path/);
  assert.match(
    problem({ ...row, image: '/a.sif', FAIL_TO_PASS: 'x' }) ?? '',
    /^FAIL_TO_PASS: expected a list/,
  );
  assert.match(
    problem({ ...row, image: '/a.sif', FAIL_TO_PASS: '[]' }) ?? '',
    /^FAIL_TO_PASS: expected at least one/,
  );
  assert.match(problem({ ...row, image: '/a.sif', test_patch: undefined }) ?? '', /^test_patch: /);
});

test('a repository whose tests pytest cannot run is refused, rather than every patch for it worth nothing', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const task = await sweTask(folder);
  assert.equal(SweTask.safeParse(task).success, true);
  const { error } = SweTask.safeParse({ ...task, repo: 'django/django' });
  assert.match(error?.message ?? '', /a runner of its own/);
});

test('what stands in for the history is empty, and nobody else’s', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const empty = emptyFolder(folder);
  assert.equal(emptyFolder(folder), empty);
  await writeFile(path.join(empty, 'HEAD'), 'ref: refs/heads/fix');
  assert.throws(() => emptyFolder(folder), { type: 'HandlerFailed', message: /is to be an empty folder/ });
  await rm(empty, { recursive: true });
  await symlink(folder, empty);
  assert.throws(() => emptyFolder(folder), { type: 'HandlerFailed' });
});

test('where folders of tasks are named, a task names nothing outside of them', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-places-'));
  t.after(() => rm(folder, { recursive: true }));
  const own = path.join(folder, 'tasks');
  await mkdir(path.join(own, 'repository'), { recursive: true });
  await symlink('/etc', path.join(own, 'elsewhere'));
  await symlink(own, path.join(folder, 'same'));
  const swe = sweHandler({ taskFolders: [path.join(folder, 'same')] });
  const { image: _, ...row } = swe.example as Record<string, unknown>;
  const asked = (places: Record<string, string>) => {
    const task = swe.schema.parse({ ...row, ...places });
    return swe.sandbox?.(task);
  };
  const [repository, packages] = [path.join(own, 'repository'), path.join(own, 'not-there-yet')];
  assert.equal(asked({ repository, packages })?.binds?.[0]?.source, repository);
  assert.equal(asked({ image: path.join(own, 'a.sif') })?.image, path.join(own, 'a.sif'));
  for (const [places, field] of [
    [{ repository: '/etc', packages }, 'repository'],
    [{ repository, packages: `${own}/../..` }, 'packages'],
    [{ repository: path.join(own, 'elsewhere'), packages }, 'repository'],
    [{ repository: own, packages }, 'repository'],
    [{ image: '/' }, 'image'],
  ] as const) {
    assert.throws(() => asked(places), {
      type: 'InvalidTask',
      message: new RegExp(`^${field}: .* is not below`),
    });
  }
  for (const outcome of [{ patch: gzipSync('').toString('base64') }, { tooLarge: 'it is' }]) {
    const grade = async () =>
      swe.evaluate({
        ...{ task: swe.schema.parse({ ...row, repository: '/etc', packages }), outcome },
        sandbox: async () => assert.fail('it was given a sandbox'),
        seconds: 1,
      } as unknown as Parameters<typeof swe.evaluate>[0]);
    await assert.rejects(grade, { type: 'InvalidTask' });
  }
});
