import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';

/*
 * Programs that run beside the example, and end with it.
 */

/** Ended with this process, whatever ends it. */
const children = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of children) child.kill('SIGTERM');
});
// What runs ends, and with it this process, after its servers.
for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  process.on(signal, () => {
    for (const child of children) child.kill('SIGTERM');
  });
}

/**
 * Starts a program. What it says goes to this process's standard error, or to `log`, a file that is open; `packages` are
 * further folders of Python's packages.
 */
export function start(
  file: string,
  args: readonly string[],
  { log = 2, packages = [] }: { log?: number; packages?: readonly string[] } = {},
): ChildProcess {
  const folders = [import.meta.dirname, path.join(PROJECT_ROOT, 'clients', 'python', 'src'), ...packages];
  const PYTHONPATH = folders.join(path.delimiter);
  // Threads that spin while they wait for each other take the processors from the LLM server.
  const quiet = { HF_HUB_OFFLINE: '1', TQDM_DISABLE: '1', OMP_WAIT_POLICY: 'passive' };
  const env = { ...process.env, PYTHONPATH, ...quiet };
  const child = spawn(file, args, { cwd: PROJECT_ROOT, env, stdio: ['ignore', log, log] });
  children.add(child);
  child.once('exit', () => children.delete(child));
  return child;
}

/** Resolves when it has ended well. @throws Error naming `what` */
export async function finish(child: ChildProcess, what: string): Promise<void> {
  const [code, signal] = await once(child, 'exit');
  if (code !== 0) throw new Error(`${what} ended with ${signal ?? `exit code ${code}`}`);
}

/** Ends all that run. */
export async function stopAll(): Promise<void> {
  for (const child of children) await stop(child);
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}

/** Resolves when the service takes requests. @throws Error if `child` has ended first */
export async function ready(url: string, child: ChildProcess): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`${child.spawnargs.join(' ')} ended`);
    const status = await fetch(`${url}/readyz`).then(
      (response) => response.status,
      () => 0,
    );
    if (status === 200) return;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}
