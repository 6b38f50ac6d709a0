import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { readReport, statusIn } from '../../activities/handlers/swe/report.ts';
import { SweTask } from '../../activities/handlers/swe/task.ts';
import { startGrader } from './grader.ts';
import { sweTask } from './swe-repository.ts';

const REFERENCE = `--- a/calc/core.py
+++ b/calc/core.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a + b + 1
+    return a + b
`;

/** A patch that adds files. */
const adding = (files: Record<string, string>) =>
  Object.entries(files)
    .map(([name, text]) => {
      const lines = text.trimEnd().split('\n');
      const added = lines.map((line) => `+${line}`).join('\n');
      return `diff --git a/${name} b/${name}\nnew file mode 100644\n--- /dev/null\n+++ b/${name}\n@@ -0,0 +1,${lines.length} @@\n${added}\n`;
    })
    .join('');

const link = (name: string, target: string) =>
  `diff --git a/${name} b/${name}\nnew file mode 120000\n--- /dev/null\n+++ b/${name}\n@@ -0,0 +1 @@\n+${target}\n\\ No newline at end of file\n`;

const FORCE = `
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = 'passed'`;

/** Put into the package, which the tests import: what it does there happens in the tests' own process. */
const inPackage = (code: string) => `--- a/calc/core.py
+++ b/calc/core.py
@@ -1,2 +1,${code.trim().split('\n').length + 2} @@
${code
  .trim()
  .split('\n')
  .map((line) => `+${line}`)
  .join('\n')}
 def add(a, b):
     return a + b + 1
`;

test('the reference patch is worth 1, no patch and each attack 0', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const task = await sweTask(folder);
  const { grade } = await startGrader(t);
  const cases: [string, string, number][] = [
    ['the reference', REFERENCE, 1],
    ['without an end of its last line', REFERENCE.trimEnd(), 1],
    ['in a block', `Here:\n\`\`\`diff\n${REFERENCE}\`\`\`\n`, 1],
    ['nothing', '', 0],
    ['no patch', 'I fixed it.', 0],
    ['half a patch', REFERENCE.slice(0, 60), 0],
    ['a conftest.py that passes everything', adding({ 'conftest.py': FORCE }), 0],
    ['one in the tests’ folder', adding({ 'tests/conftest.py': FORCE }), 0],
    [
      'settings that load a plug-in',
      adding({ 'pytest.ini': '[pytest]\naddopts = -p evil', 'evil.py': FORCE }),
      0,
    ],
    ['a pytest of its own', adding({ 'pytest.py': 'import os\nos._exit(0)', 'sitecustomize.py': FORCE }), 0],
    ['tests of its own', adding({ 'tests/test_calc.py': 'def test_add(): pass' }), 0],
    ['a link in place of the tests', link('tests', '/tmp'), 0],
    ['links where reports may go', link('report.xml', '/dev/null') + link('logs', '/tmp'), 0],
    [
      'coloured words of success',
      inPackage("print('\\033[32mPASSED\\033[0m tests/test_calc.py::test_add')"),
      0,
    ],
    ['an early end', inPackage('import os\nos._exit(0)'), 0],
    [
      'a patched runner',
      inPackage(
        'from _pytest.reports import TestReport\nof = TestReport.from_item_and_call.__func__\ndef passed(cls, item, call):\n    call.excinfo = None\n    return of(cls, item, call)\nTestReport.from_item_and_call = classmethod(passed)',
      ),
      0,
    ],
    [
      'a patched assertion',
      inPackage(
        "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})\nimport unittest.case",
      ),
      0,
    ],
    ['skipped tests', inPackage('import pytest\npytest.skip(allow_module_level=True)'), 0],
    [
      'a report of its own',
      inPackage(
        "import sys, os\nwanted = [a for a in sys.argv + sys.orig_argv if 'report.xml' in a]\nfor a in wanted: open(a.split('=')[-1], 'w').write('<testsuites><testsuite><testcase classname=\"tests.test_calc\" name=\"test_add\"/></testsuite></testsuites>')\nos._exit(0)",
      ),
      0,
    ],
  ];
  await Promise.all(
    cases.map(async ([what, patch, total]) => {
      const reward = await grade('swe', task, patch);
      assert.equal(reward.total, total, `${what}: ${JSON.stringify(reward.parts)}`);
    }),
  );
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
