import { gunzipSync, gzipSync } from 'node:zlib';
import { RolloutError } from '../../../contracts/failures.ts';
import { blocksIn } from '../../grading/blocks.ts';
import { bash } from '../../tools/bash.ts';
import { editor } from '../../tools/editor.ts';
import { finish } from '../../tools/finish.ts';
import { defineHandler } from '../handler.ts';
import { loadPrompt } from '../prompt-file.ts';
import { ended, rewardOf, runTests } from './grade.ts';
import { graderSandboxOf, must, placeRepository, REPOSITORY, sandboxOf } from './sandbox.ts';
import { instanceOf, SweTask } from './task.ts';

/** Bytes of a patch, and of what an outcome holds of it: it travels with the trajectory. */
const [MOST_PATCH, MOST_PACKED] = [16 * 1024 ** 2, 160 * 1024];
/** What running things leaves behind is no part of the answer. */
const LEFT_BEHIND = ['**/__pycache__/**', '**/*.pyc', '**/.pytest_cache/**', '**/*.egg-info/**'];
/** Files that are not as .gitattributes says, or name a program that is not there, go in as they are. */
const COMMIT = `
set -e
git init --quiet --initial-branch=main .
mkdir -p .git/info
echo '* -filter !working-tree-encoding' > .git/info/attributes
git add --all --force .
git -c user.name=task -c user.email=task@localhost commit --quiet --message=base`;

/**
 * Software engineering in a repository: reward 1 if the tests that should pass do, else 0. `taskFolders`: below which
 * tasks may name images, repositories and packages of the host; anywhere if there is none.
 */
export function sweHandler({ taskFolders = [] }: { readonly taskFolders?: readonly string[] } = {}) {
  return defineHandler<SweTask>({
    name: 'swe',
    description:
      'Issues of a repository (SWE-bench and R2E-Gym layouts), graded by the tests of the real fix.',
    schema: SweTask,
    example: {
      instance_id: 'acme__calc-1',
      repo: 'acme/calc',
      problem_statement: 'add(1, 2) is 4.',
      test_patch: '--- a/test_calc.py\n+++ b/test_calc.py\n@@ …',
      FAIL_TO_PASS: '["test_calc.py::test_add"]',
      PASS_TO_PASS: '[]',
      image: '/images/acme__calc-1.sif',
    },

    sandbox: (task) => sandboxOf(instanceOf(task).environment, taskFolders),
    // Suites run for minutes; so long has SWE-bench's own harness for one.
    deadlines: () => ({ runSeconds: 1800, evaluateSeconds: 1800 }),
    tools: () => [bash, editor, finish],
    prompt: (task) =>
      loadPrompt(new URL('./prompt.md', import.meta.url), {
        issue: instanceOf(task).statement,
        folder: REPOSITORY,
      }),

    init: async ({ task, sandbox }) => {
      const root = await placeRepository(sandbox, instanceOf(task).environment);
      // A history of one commit, in which no later one can be found.
      await must(sandbox, 'HandlerFailed', 'the repository could not be committed', {
        argv: ['bash', '-c', COMMIT],
        cwd: root,
        timeoutMs: 120_000,
      });
      await sandbox.markStart();
    },

    outcome: async ({ sandbox }) => {
      const diff = await sandbox.diff({ folder: REPOSITORY, exclude: LEFT_BEHIND, maxBytes: MOST_PATCH });
      if (diff.status === 'tooLarge') return { tooLarge: diff.why };
      return packed(Buffer.from(diff.patch, 'base64'));
    },

    recorded: async ({ response }) => packed(Buffer.from(ended(patchIn(response)))),

    evaluate: async ({ task, outcome, sandbox, seconds }) => {
      const instance = instanceOf(task);
      const spec = graderSandboxOf(instance.environment, taskFolders);
      if (typeof outcome.tooLarge === 'string') {
        return rewardOf(instance, { applied: false, timedOut: false, results: undefined });
      }
      if (typeof outcome.patch !== 'string')
        throw new RolloutError('GraderFailed', 'the outcome holds no patch');
      const patch = gunzipSync(Buffer.from(outcome.patch, 'base64'), { maxOutputLength: MOST_PATCH });
      // What is left when the rest has taken its time: tests that hang are the policy's, a grade that does not end is ours.
      const fresh = await sandbox(spec);
      return rewardOf(instance, await runTests(fresh, instance, { patch, seconds: seconds * 0.7 }));
    },
  });
}

/** gzip, base64. */
function packed(patch: Buffer): Record<string, unknown> {
  const text = gzipSync(patch).toString('base64');
  if (text.length > MOST_PACKED) return { tooLarge: `the patch takes ${text.length} bytes, packed` };
  return { patch: text, patchBytes: patch.length };
}

/** The patch in a reply: its last fenced block of a diff, else all of it. */
function patchIn(response: string): string {
  const block = blocksIn(response).findLast(({ language }) => language === 'diff' || language === 'patch');
  return block?.content ?? response;
}
