import { spawn } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { isAlive, namesAsText, readNames } from './process-names.ts';
import { processInfo, SANDBOX_VARIABLE, signal } from './processes.ts';

/**
 * Waits until nothing holds its stdin any more, then kills for a second or so what was started for sandboxes whose
 * ids begin with `$2`, as the variable `$1` in their environment says. Starts no process for that. Up to nulls bash
 * reads byte by byte, which took half a second for 360 processes; so it does where a look at whole lines, of which it
 * drops the nulls, has found something.
 */
const SCRIPT = `
mentioned() {
  local line
  while IFS= read -r line || [[ $line ]]; do [[ $line != *"$2"* ]] || return 0; done < "$1"
  return 1
}
read -r _
exec 9<> <(:) # a pipe that nothing comes from: a pause without a process
for _ in 1 2 3 4 5 6 7 8 9 10; do
  for process in /proc/[0-9]*; do
    mentioned "$process/environ" "$1=$2" || continue
    while IFS= read -r -d '' entry; do
      [[ $entry != "$1=$2"* ]] || kill -KILL "\${process##*/}"
    done < "$process/environ"
  done
  read -r -t 0.1 -u 9 _
done 2>/dev/null`;

/**
 * Starts a process that outlives this one and ends what its backends started, should it be killed. Each backend's own
 * way (PR_SET_PDEATHSIG, a pipe) leaves moments in which a sandbox that is being made notices nothing.
 * @returns how to end it, when the sandboxes have been ended in order
 */
export function startReaper(prefix: string, file: string): () => void {
  const argv = ['--norc', '--noprofile', '-c', SCRIPT, 'reaper', SANDBOX_VARIABLE, prefix];
  const child = spawn('/bin/bash', argv, {
    env: {},
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.unref();
  (child.stdin as Socket).unref();
  child.stdin.on('error', () => {}); // it was killed: the next host clears
  const info = processInfo(child.pid ?? 0);
  if (info) writeFileSync(file, namesAsText([info]), { mode: 0o600 });
  return () => {
    child.kill('SIGKILL');
    rmSync(file, { force: true });
  };
}

/** Ends the one of an earlier host, which would take the sandboxes of this one for those of that. */
export function stopReaper(file: string): void {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    return; // there was none
  }
  for (const { pid } of readNames(text).filter(isAlive)) signal(pid, 'SIGKILL');
}
