import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';

test('the example trainer reads groups and goes on from its journal', () => {
  const folder = path.join(PROJECT_ROOT, 'examples', 'training');
  const args = [
    '-B',
    '-m',
    'pytest',
    '-q',
    '-p',
    'no:cacheprovider',
    'tests/test_data.py',
    'tests/test_journal.py',
  ];
  const said = execFileSync(loadTools().python, args, { cwd: folder, encoding: 'utf8' });
  assert.match(said, /^7 passed/m);
});
