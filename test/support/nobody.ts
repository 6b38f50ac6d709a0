import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import { loadTools, PROJECT_ROOT } from '../../config/tools.ts';
import { temporaryFolder } from '../sandbox/support.ts';
import { RUNTIME_VARIABLE } from './apptainer.ts';

/** For `skip` of tests that run others as an ordinary user: false, or the reason. */
export const NOT_ROOT = process.geteuid?.() !== 0 && 'all other tests run as an ordinary user then';

/**
 * Runs in a mount namespace of its own, where the checkout, Node and what the set-up brought are shown to a user who
 * may not reach them. Arguments: empty folder, checkout, Node, the set-up's Python environment, the list of tools to
 * show in place of the checkout's, then the arguments of Node.
 */
const AS_NOBODY = `
set -e
mount -t tmpfs -o mode=755 view "$1"
cd "$1"; mkdir checkout python; : > node
mount --rbind "$2" checkout; mount --bind "$3" node; mount --bind "$4" python
mount --bind "$5" checkout/.rollouts/tools.json
node=$1/node; cd checkout; shift 5
exec setpriv --reuid=65534 --regid=65534 --clear-groups env -i HOME=/tmp PATH=/usr/bin:/bin:/usr/sbin \\
  ${RUNTIME_VARIABLE}="$${RUNTIME_VARIABLE}" "$node" "$@"`;

/** Runs the tests of these files whose name matches `pattern` as an ordinary user; returns what they said. */
export async function testAsNobody(t: TestContext, pattern: string, files: string[]): Promise<string> {
  const own = temporaryFolder(t);
  chmodSync(own, 0o711); // for somebody else to pass
  const folder = path.join(own, 'view');
  mkdirSync(folder);
  const tools = loadTools();
  const python = path.dirname(path.dirname(tools.python));
  const list = path.join(own, 'tools.json');
  writeFileSync(list, JSON.stringify(tools).replaceAll(python, `${folder}/python`));
  const places = [folder, PROJECT_ROOT, process.execPath, python, list];
  const argv = ['--import', 'tsx', '--test', '--test-reporter=tap', `--test-name-pattern=${pattern}`];
  const script = ['--mount', '--', '/bin/bash', '-c', AS_NOBODY, 'nobody', ...places, ...argv, ...files];
  const run = promisify(execFile)('/usr/bin/unshare', script);
  const { stdout } = await run.catch((error: { stdout: string; stderr: string }) =>
    assert.fail(error.stdout + error.stderr),
  );
  return stdout;
}
