import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import type { Entry } from './backend.ts';

/** How long a process that was sent SIGKILL may take to be gone, in milliseconds. */
const DEATH_MS = 10_000;

/** Waits for the end of a child that was killed. @throws RolloutError SandboxFailed if it does not come. */
export async function untilDead(child: ChildProcess, what: string): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  try {
    await once(child, 'exit', { signal: AbortSignal.timeout(DEATH_MS) });
  } catch (error) {
    throw new RolloutError('SandboxFailed', `${what} was killed and is still there`, { cause: error });
  }
}

/** Runs a program without input; its standard error is the message. */
export async function runQuietly(
  file: string,
  args: readonly string[],
  env: Record<string, string>,
): Promise<{ ok: boolean; message: string }> {
  const child = spawn(file, args, { env, detached: true, stdio: ['ignore', 'ignore', 'pipe', 'ignore'] });
  let message = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    message = (message + chunk).slice(0, 4096);
  });
  try {
    const [code, name] = (await once(child, 'close')) as [number | null, string | null];
    return { ok: code === 0, message: message.trim() || `exit ${code ?? name}` };
  } catch (error) {
    return { ok: false, message: messageOf(error) };
  }
}

/** Most that it may print: 32,000 lines for each kind of what a sandbox may have of System V. */
const MAX_OUTPUT_BYTES = 64 * 1024 ** 2;

/** What a short program of the host prints. @throws RolloutError SandboxFailed */
export async function outputOf({ file, args, env }: Entry): Promise<string> {
  try {
    const options = { env, cwd: '/', timeout: DEATH_MS, maxBuffer: MAX_OUTPUT_BYTES };
    return (await promisify(execFile)(file, args, options)).stdout;
  } catch (error) {
    throw new RolloutError('SandboxFailed', messageOf(error), { cause: error });
  }
}
