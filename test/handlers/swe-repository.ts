import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { loadTools } from '../../config/tools.ts';

const FILES = {
  'calc/__init__.py': 'from calc.core import add\n',
  'calc/core.py': 'def add(a, b):\n    return a + b + 1\n',
  'tests/test_old.py': 'def test_old():\n    import calc\n    assert calc\n',
  'tests/test_calc.py': 'def test_nothing():\n    pass\n',
};

/** The fix of the instance. */
export const REFERENCE = `--- a/calc/core.py
+++ b/calc/core.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a + b + 1
+    return a + b
`;

const TEST_PATCH = `--- a/tests/test_calc.py
+++ b/tests/test_calc.py
@@ -1,2 +1,17 @@
+import pytest
+import unittest
+
+from calc import add
+
+
 def test_nothing():
     pass
+
+
+@pytest.mark.parametrize('a, b, c', [(1, 2, 3), (-1, 1, 0)])
+def test_add(a, b, c):
+    assert add(a, b) == c
+
+class AddTest(unittest.TestCase):
+    def test_hidden_marker(self):
+        self.assertEqual(add(0, 0), 0)
`;

/** An instance in SWE-bench's layout over a small repository of its own in a folder; its packages are the set-up's. */
export async function sweTask(folder: string): Promise<Record<string, unknown>> {
  for (const [name, text] of Object.entries(FILES)) {
    const file = path.join(folder, 'repository', name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, text);
  }
  const environment = path.dirname(path.dirname(loadTools().python));
  const version = path.basename(await libraryOf(environment));
  return {
    instance_id: 'own__calc-1',
    repo: 'own/calc',
    base_commit: '0',
    problem_statement: 'add(1, 2) is 4.',
    test_patch: TEST_PATCH,
    FAIL_TO_PASS: JSON.stringify([
      'tests/test_calc.py::test_add[1-2-3]',
      'tests/test_calc.py::test_add[-1-1-0]',
      'tests/test_calc.py::AddTest::test_hidden_marker',
    ]),
    PASS_TO_PASS: ['tests/test_calc.py::test_nothing'],
    repository: path.join(folder, 'repository'),
    packages: path.join(environment, 'lib', version, 'site-packages'),
  };
}

async function libraryOf(environment: string): Promise<string> {
  const { readdir } = await import('node:fs/promises');
  const names = await readdir(path.join(environment, 'lib'));
  return names.find((name) => name.startsWith('python')) ?? '';
}
