import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { terminalWaitedFor } from '../../workers/sandbox-host/shells/input.ts';
import { until } from './support.ts';

test('a process that goes on while it is looked at waits for nobody', async (t) => {
  const child = spawn('bash', ['-c', 'read line; read line; exec sleep 600'], {
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  t.after(() => child.kill('SIGKILL'));
  const { pid } = child as { pid: number };
  const doing = () => fs.readFileSync(`/proc/${pid}/syscall`, 'latin1');
  const input = `/proc/${pid}/fd/0`;
  // What it reads from passes for the terminal, from when the number is looked up.
  let meanwhile = () => {};
  t.mock.method(fs, 'readlinkSync', (file: string) => {
    meanwhile();
    return file === input ? '/dev/pts/7' : '/';
  });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  await until(() => terminalWaitedFor(pid) === '/dev/pts/7', 'it waits');
  child.stdin.write('first\n');
  await until(() => terminalWaitedFor(pid) === '/dev/pts/7', 'it waits again');
  meanwhile = () => {
    const before = doing();
    child.stdin.write('second\n');
    while (doing() === before);
  };
  assert.equal(terminalWaitedFor(pid), null);
});
