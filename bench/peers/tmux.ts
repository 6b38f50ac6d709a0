import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { findProgram } from '../../config/programs.ts';
import { times } from '../measure.ts';

const run = promisify(execFile);

/**
 * One command as agents run it through tmux: typed with send-keys, waited for with wait-for, its screen read with
 * capture-pane. @throws Error when there is no tmux
 */
export async function tmuxTimes(n: number, command: string): Promise<number[]> {
  const program = findProgram(['tmux']);
  if (!program) throw new Error('there is no tmux on PATH');
  const server = `bench-${randomBytes(6).toString('hex')}`;
  const tmux = (...args: string[]) => run(program, ['-L', server, '-f', '/dev/null', ...args]);
  await tmux('new-session', '-d', '-x', '200', '-y', '50', '/bin/bash --norc');
  try {
    let calls = 0;
    const once = async (): Promise<void> => {
      const done = `done-${calls++}`;
      await tmux('send-keys', `${command}; ${program} -L ${server} wait-for -S ${done}`, 'Enter');
      await tmux('wait-for', done);
      await tmux('capture-pane', '-p');
    };
    await times(5, once);
    return await times(n, once);
  } finally {
    await tmux('kill-server');
  }
}
