import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { findProgram } from '../../config/programs.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { Box, failure, hostOptions, temporaryFolder } from '../sandbox/support.ts';
import { APPTAINER, WITHOUT_APPTAINER } from '../support/apptainer.ts';

/** The options of SingularityCE 4 that are used here; its own program cannot be had on every machine. */
const KNOWN = [
  ...['--containall', '--no-home', '--cleanenv', '--no-init', '--no-eval', '--net', '--network'],
  ...['--uts', '--hostname', '--writable-tmpfs', '--no-mount', '--mount', '--no-tmp-sandbox'],
];

test('a program that is SingularityCE by name is found on PATH and told only what it knows', {
  skip: WITHOUT_APPTAINER,
}, async (t) => {
  // Not in /tmp, where a host that runs as root shows other things to the runtime.
  const folder = mkdtempSync('/var/tmp/singularity-');
  t.after(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o755);
  const script = `#!/bin/bash
[ "$1" = --version ] && exec echo singularity-ce version 4.1.5
for word; do case $word in
  ${KNOWN.join('|')}) ;;
  --*) [ "$ended" ] || { echo "FATAL: unknown flag: $word"; exit 1; } >&2 ;;
  /run/rollout-tools/*) ended=yes ;;
esac; done
words=()
for word; do [ "$word" = --no-tmp-sandbox ] || words+=("$word"); done
exec ${APPTAINER} "\${words[@]}"`;
  writeFileSync(path.join(folder, 'singularity'), script, { mode: 0o755 });
  const apptainerPath = findProgram(['apptainer', 'singularity'], folder);
  assert.equal(apptainerPath, path.join(folder, 'singularity'));
  const running = await startSandboxHost({ ...hostOptions(temporaryFolder(t), 'apptainer'), apptainerPath });
  const client = new SandboxClient(running);
  t.after(async () => {
    await client.close();
    await running.close();
  });
  const box = await Box.create(client);
  assert.equal((await box.bash('id -un; echo x > /x && cat /x')).output.text, 'root\nx\n');
  assert.equal((await box.bash('echo works')).output.text, 'works\n');
});

test('what is neither, or too old, is refused by what it says of itself', async (t) => {
  const folder = mkdtempSync('/var/tmp/singularity-');
  t.after(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o755);
  const apptainerPath = path.join(folder, 'singularity');
  for (const version of ['singularity-ce version 3.11.5', 'singularity 2.6.1', 'Singularity 1.2']) {
    writeFileSync(apptainerPath, `#!/bin/sh\necho ${version}\n`, { mode: 0o755 });
    const options = { ...hostOptions(temporaryFolder(t), 'apptainer'), apptainerPath };
    const why = new RegExp(`it says that it is "${version}": Apptainer, or SingularityCE from 4\\.0 on`);
    await assert.rejects(startSandboxHost(options), failure('SandboxUnavailable', why));
  }
});
