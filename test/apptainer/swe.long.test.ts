import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { sweHandler } from '../../activities/handlers/swe/swe.ts';
import { bindSandbox } from '../../activities/sandbox/bound.ts';
import { gradeRecorded } from '../../client/recorded.ts';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { buildImage } from '../../workers/sandbox-host/images/build.ts';
import { REFERENCE, sweTask } from '../handlers/swe-repository.ts';
import { startHost, temporaryFolder } from '../sandbox/support.ts';
import { WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { buildOptions, makeRoot } from './support.ts';

const FIX = 'the-fix-4b1d';
/** Not one of the user's own, which has its libraries elsewhere. */
const PYTHON = '/usr/bin/python3';
/** Of installed packages, what pytest takes; the last three only in older Pythons. */
const PYTEST =
  /^(?:_?pytest|py\.py|pluggy|iniconfig|packaging|pygments|exceptiongroup|tomli|typing_extensions\.py)$/;

/** A root file system with Python and pytest in it, and the repository in /testbed, with the fix in its history. */
function makeTestbed(root: string, repository: string, packages: string): void {
  // As every Python has it, with the library that it needs.
  const ask = (script: string) => execFileSync(PYTHON, ['-c', script], { encoding: 'utf8' }).trim();
  makeRoot(root, [PYTHON, 'git', 'tar', ask('import _ctypes; print(_ctypes.__file__)')]);
  const library = ask('import sysconfig; print(sysconfig.get_path("stdlib"))');
  const without = /\/(?:test|idlelib|tkinter|ensurepip|lib2to3|config-[^/]*|__pycache__|dist-packages)$/;
  cpSync(realpathSync(library), path.join(root, library), {
    recursive: true,
    filter: (file) => !without.test(file),
  });
  for (const name of readdirSync(packages).filter((one) => PYTEST.test(one))) {
    cpSync(path.join(packages, name), path.join(root, library, name), { recursive: true });
  }
  const testbed = path.join(root, 'testbed');
  cpSync(repository, testbed, { recursive: true });
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...args], { cwd: testbed, env: {} });
  git('init', '--quiet');
  git('add', '--all');
  git('commit', '--quiet', '--message=base');
  git('checkout', '--quiet', '-b', 'later');
  execFileSync('git', ['apply'], { cwd: testbed, input: REFERENCE, env: {} });
  git('commit', '--quiet', '--all', `--message=${FIX}`);
  git('checkout', '--quiet', '-');
}

test('an instance in an image: no history for the agent, the patch graded in a fresh one', {
  skip: WITHOUT_APPTAINER,
}, async (t) => {
  const folder = temporaryFolder(t);
  const { repository, packages, ...row } = await sweTask(folder);
  const root = path.join(folder, 'root');
  makeTestbed(root, repository as string, packages as string);
  const image = await buildImage(root, buildOptions(path.join(folder, 'images')));
  const swe = sweHandler();
  const task = swe.schema.parse({ ...row, image: image.path });
  const { client } = await startHost(t, 'apptainer');

  const spec = SandboxSpec.parse(swe.sandbox?.(task));
  const info = await client.create({ rolloutId: 'agent', workflowRunId: 'run-1', attempt: 1, spec });
  const signal = new AbortController().signal;
  const sandbox = bindSandbox(client, info, signal);
  await swe.init?.({ task, sandbox, signal });
  const look = `git -C repo log --all --format=%s; git -C repo reflog --format=%gs; git -C /testbed log --all 2>&1; ls -A /testbed/.git; grep -rl ${FIX} repo /testbed; cat repo/calc/core.py`;
  const seen = await sandbox.exec({ argv: ['bash', '-c', look], timeoutMs: 60_000 });
  assert.match(
    seen.stdout.text,
    /^base\ncommit \(initial\): base\nfatal: not a git repository[^\n]*\ndef add\(a, b\):\n {4}return a \+ b \+ 1\n$/,
  );
  await client.release(info.sandboxId);

  const registry = new HandlerRegistry();
  const grade = async (id: string, patch: string) => {
    const given = { registry, sandboxes: async () => client, id, signal };
    return (await gradeRecorded({ handler: 'swe', id, data: task }, patch, given)).total;
  };
  assert.deepEqual(await Promise.all([grade('reference', REFERENCE), grade('nothing', '')]), [1, 0]);
});
