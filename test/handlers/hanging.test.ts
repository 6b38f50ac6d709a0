import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { grade } from '../../activities/grading/grade.ts';
import { recordedOutcome } from '../../activities/handlers/reward-of.ts';
import { processesWith } from '../apptainer/support.ts';
import { until } from '../support/until.ts';
import { fenced, startGrader } from './grader.ts';
import { sweTask } from './swe-repository.ts';

const SECONDS = 6;
/** Found again among the machine's processes; no other test sleeps for so long. */
const ASLEEP = '98761.25';

test('a grader that hangs fails at the deadline, is no reward, and leaves nothing behind', async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'swe-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const hanging = await sweTask(folder);
  const program = path.join(folder, 'repository', 'hang');
  await writeFile(program, `#!/bin/sh\nexec sleep ${ASLEEP}\n`);
  await chmod(program, 0o755);
  const checked = {
    description: 'Print 1.',
    official_tests: [{ input: '', output: '1' }],
    generated_checker: `import os\nos.execvp("sleep", ["sleep", "${ASLEEP}"])`,
  };
  const judged = { question: 'Why?', answer: 'so', rubric: 'It says so.' };
  const { grade: gradeOf, client, registry } = await startGrader(t, SECONDS);
  const late = { type: 'StageDeadline', message: `evaluate did not return within ${SECONDS} s` };
  const opened = registry.open({ handler: 'stem', id: 'a', data: judged });
  await Promise.all([
    assert.rejects(gradeOf('code', checked, fenced('python', 'print(1)')), late),
    assert.rejects(gradeOf('swe', { ...hanging, python: '/workspace/repo/hang' }, ''), late),
    assert.rejects(
      grade({
        ...opened,
        ...(await recordedOutcome(opened.handler, opened.data, '\\boxed{so}')),
        judge: { ask: () => new Promise<string>(() => {}) },
        python: registry.python,
        sandboxes: client,
        owner: { rolloutId: 'judged', workflowRunId: 'run', attempt: 1 },
        seconds: SECONDS,
        signal: new AbortController().signal,
      }),
      late,
    ),
  ]);
  // One that was still being made when its grade was left ends as soon as it is there.
  await until(async () => (await client.stats()).graders === 0, 'no sandbox of a grader is left');
  assert.deepEqual(processesWith(ASLEEP), []);
});
