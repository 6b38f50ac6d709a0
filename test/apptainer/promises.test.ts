import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { failure, hostOptions, temporaryFolder } from '../sandbox/support.ts';
import { APPTAINER, WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { processesWith } from './support.ts';

test('a runtime that does not keep what it was told makes no sandbox', {
  skip: WITHOUT_APPTAINER,
}, async (t) => {
  // Not in /tmp, where a host that runs as root shows other things to the runtime.
  const folder = mkdtempSync('/var/tmp/apptainer-');
  t.after(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o755);
  for (const [left, instead, why] of [
    ['--net|--network|none', '', /has network devices .*--net --network none has no effect/],
    ['--containall', '--contain --ipc', /it shares the processes of the host/],
    ['--uts|--hostname|sandbox', '', /it shares namespaces with the host: uts/],
  ] as const) {
    await t.test(`told without ${left}`, async (t) => {
      const program = path.join(folder, 'apptainer');
      const script = `#!/bin/bash
for word; do
  shift
  case $word in ${left}) set -- "$@" ${instead} ;; *) set -- "$@" "$word" ;; esac
done
exec ${APPTAINER} "$@"`;
      writeFileSync(program, script, { mode: 0o755 });
      const stateDir = temporaryFolder(t);
      const options = { ...hostOptions(stateDir, 'apptainer'), apptainerPath: program };
      await assert.rejects(startSandboxHost(options), failure('SandboxUnavailable', why));
      assert.deepEqual(processesWith(stateDir), []);
      assert.deepEqual(
        readdirSync(path.join(stateDir, 'host/shared/apptainer')).filter((name) => name.startsWith('trial')),
        [],
      );
    });
  }
});
