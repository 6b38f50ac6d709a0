import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { findProgram } from '../../config/programs.ts';
import { inNamesOfTheHost } from '../../workers/sandbox-host/backends/apptainer-advice.ts';
import { processIds } from '../../workers/sandbox-host/processes.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { Box, failure, hostOptions, startHostProcess, temporaryFolder, until } from '../sandbox/support.ts';
import { APPTAINER, RUNTIME_VARIABLE, WITHOUT_APPTAINER } from '../support/apptainer.ts';
import { processesWith } from './support.ts';

/** The options of SingularityCE 4 that are used here; its own program cannot be had on every machine. */
const KNOWN = [
  ...['--containall', '--no-home', '--cleanenv', '--no-init', '--no-eval', '--net', '--network'],
  ...['--uts', '--hostname', '--writable-tmpfs', '--no-mount', '--mount', '--no-tmp-sandbox'],
];

/** Stands for squashfuse as SingularityCE starts it: it leaves session and parent, and nothing in it names a sandbox. */
const HELPER = ['sleep', String(300 + Math.random())];
const helpers = () => processIds().filter((pid) => argumentsOf(pid) === `${HELPER.join('\0')}\0`);

function argumentsOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return ''; // it has ended
  }
}

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
(env -i setsid ${HELPER.join(' ')} >/dev/null 2>&1 </dev/null &)
for word; do [ "$word" = --no-tmp-sandbox ] || words+=("$word"); done
exec ${APPTAINER} "\${words[@]}"`;
  writeFileSync(path.join(folder, 'singularity'), script, { mode: 0o755 });
  const apptainerPath = findProgram(['apptainer', 'singularity'], folder);
  assert.equal(apptainerPath, path.join(folder, 'singularity'));
  const stateDir = temporaryFolder(t);
  const { child, client } = await startHostProcess(t, stateDir, 'apptainer', {
    [RUNTIME_VARIABLE]: apptainerPath,
  });
  assert.deepEqual(helpers(), [], 'the trial of the host has left its own');
  const box = await Box.create(client);
  assert.equal((await box.bash('id -un; echo x > /x && cat /x')).output.text, 'root\nx\n');
  assert.equal((await box.bash('echo works')).output.text, 'works\n');
  assert.equal(helpers().length, 1);
  await box.release();
  assert.deepEqual(helpers(), []);

  const { info } = await Box.create(client);
  const recorded = path.join(stateDir, 'host', 'sandboxes', info.sandboxId, 'processes.json');
  const [first, ...others] = (JSON.parse(readFileSync(recorded, 'utf8')) as { pid: number }[]).map(
    ({ pid }) => pid,
  );
  const runtimes = others.filter((pid) => /runtime parent/.test(argumentsOf(pid)));
  assert.deepEqual([helpers().length, runtimes.length > 0], [1, true]);
  // Neither the sandbox nor what runs it notices that the host is gone.
  for (const pid of [first as number, ...runtimes]) process.kill(pid, 'SIGSTOP');
  child.kill('SIGKILL');
  await until(() => helpers().length === 0, 'the end of the helper');
  await until(() => processesWith(info.sandboxId).length === 0, 'the end of what holds the sandbox up');
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

test('a squashfuse that is too old for SingularityCE is named with what to do', () => {
  const said = new Error(
    "fuse: unknown option(s): `-o uid=0,gid=0'; FATAL: while preparing image: prohibited",
  );
  const why = failure('SandboxFailed', /uid=0,gid=0.*prohibited\. SingularityCE needs squashfuse 0\.2\.0/);
  assert.ok(why(inNamesOfTheHost(said, ['/images/a.sif'], null)));
});
