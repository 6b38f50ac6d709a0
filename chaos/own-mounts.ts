import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const UNSHARE = '/usr/bin/unshare';
/** Says that this process has mounts of its own. */
const APART = '--apart';

/**
 * Runs this process again with mounts of its own and ends with it, where that can be: what is mounted goes with it and its
 * children, however they end.
 */
export function takeOwnMounts(): void {
  if (process.getuid?.() !== 0 || process.argv.includes(APART) || !existsSync(UNSHARE)) return;
  const node = [process.execPath, ...process.execArgv, process.argv[1] as string];
  const argv = ['--mount', '--propagation', 'private', '--', ...node, APART, ...process.argv.slice(2)];
  const { status } = spawnSync(UNSHARE, argv, { stdio: 'inherit' });
  process.exit(status ?? 1);
}
