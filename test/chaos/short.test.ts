import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { test } from 'node:test';
import { FAULTS } from '../../chaos/plan.ts';
import type { RoundReport } from '../../chaos/report.ts';
import { PROJECT_ROOT } from '../../config/tools.ts';

test('a cluster that is broken in every way loses, repeats and makes up nothing', async (t) => {
  const argv = ['--import', 'tsx', path.join('chaos', 'main.ts'), '--short'];
  const child = spawn(process.execPath, argv, { cwd: PROJECT_ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const [code] = await once(child, 'close');
  const lastLine = said.trimEnd().split('\n').at(-1) as string;
  assert.match(lastLine, /^\{/, said);
  const report = JSON.parse(lastLine) as RoundReport;
  assert.deepEqual(report.problems, [], said);
  assert.equal(code, 0, said);
  const made = new Set([...Object.keys(report.faults), ...Object.keys(report.skipped)]);
  assert.deepEqual([...made].sort(), Object.keys(FAULTS).sort());
  const { completed, truncated, failed, cancelled = 0 } = report.outcomes;
  // Of ten, one wants too many turns, one has a grader that crashes, one is cancelled unless it is quicker.
  assert.deepEqual([truncated, failed, (completed as number) + cancelled], [1, 1, 8]);
  assert.ok(report.recovery_ms.n > 0 && report.recovery_ms.p50 !== null);
  assert.ok(report.tokens_recorded > 0);
});
