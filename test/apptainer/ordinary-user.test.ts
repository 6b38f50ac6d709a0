import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { temporaryFolder } from '../sandbox/support.ts';
import { WITHOUT_APPTAINER } from '../support/apptainer.ts';

/**
 * Runs in a mount namespace of its own, where the checkout and Node are shown to a user who may not reach them.
 * Arguments: empty folder, checkout, Node, then the arguments of Node.
 */
const AS_NOBODY = `
set -e
mount -t tmpfs -o mode=755 view "$1"
cd "$1"; mkdir checkout; : > node
mount --rbind "$2" checkout; mount --bind "$3" node
node=$1/node; cd checkout; shift 3
exec setpriv --reuid=65534 --regid=65534 --clear-groups env -i HOME=/tmp PATH=/usr/bin:/bin:/usr/sbin "$node" "$@"`;

const skip =
  WITHOUT_APPTAINER || (process.geteuid?.() !== 0 && 'all other tests run as an ordinary user then');

test('a host of an ordinary user keeps the same promises', { skip }, async (t) => {
  const folder = path.join(temporaryFolder(t), 'view');
  mkdirSync(folder);
  chmodSync(path.dirname(folder), 0o711); // for somebody else to pass
  const argv = ['--import', 'tsx', '--test', '--test-name-pattern=apptainer'];
  const files = ['test/sandbox/conformance.test.ts', 'test/apptainer/isolation.test.ts'];
  const script = ['/bin/bash', '-c', AS_NOBODY, 'nobody', folder, PROJECT_ROOT, process.execPath];
  const run = promisify(execFile)('/usr/bin/unshare', ['--mount', '--', ...script, ...argv, ...files]);
  const { stdout } = await run.catch((error: { stdout: string; stderr: string }) =>
    assert.fail(error.stdout + error.stderr),
  );
  assert.match(stdout, /^ok \d+ - apptainer: what every backend does$/m);
  assert.match(stdout, /^ok \d+ - what runs in apptainer$/m);
});
