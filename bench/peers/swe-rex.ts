import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadTools } from '../../config/tools.ts';

const run = promisify(execFile);
const VERSION = '1.4.0';

/**
 * One command in a session of SWE-ReX's local runtime, measured inside its own process: no HTTP is counted.
 * @throws Error when it cannot be installed
 */
export async function sweRexTimes(n: number, command: string): Promise<number[]> {
  const python = await environment();
  const script = fileURLToPath(new URL('./swe-rex.py', import.meta.url));
  const { stdout } = await run(python, [script, String(n), command], { timeout: 600_000 });
  return JSON.parse(stdout.trim().split('\n').at(-1) as string) as number[];
}

/** A virtual environment of the benchmark's own, made once below the cache folder. */
async function environment(): Promise<string> {
  const folder = path.join(os.homedir(), '.cache', 'durable-rollouts', 'bench', `swe-rex-${VERSION}`);
  const python = path.join(folder, 'bin', 'python');
  if (existsSync(path.join(folder, 'complete'))) return python;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(path.dirname(folder), { recursive: true });
  await run(loadTools().python, ['-m', 'venv', folder]);
  await run(python, ['-m', 'pip', 'install', '--quiet', `swe-rex==${VERSION}`], { timeout: 600_000 });
  mkdirSync(path.join(folder, 'being-completed'));
  renameSync(path.join(folder, 'being-completed'), path.join(folder, 'complete'));
  return python;
}
