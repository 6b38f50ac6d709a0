import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { startTimeOf } from '../../config/process-identity.ts';
import { RolloutError } from '../../contracts/failures.ts';

/**
 * Makes this process the one that runs the stack of a state folder.
 * @returns how to give that up again.
 * @throws RolloutError InvalidRequest if another process, alive, is it.
 */
export function lockStack(stateFolder: string): () => void {
  mkdirSync(stateFolder, { recursive: true });
  const file = path.join(stateFolder, 'stack.lock');
  const mine = JSON.stringify({ pid: process.pid, start: startTimeOf(process.pid) ?? '' });
  try {
    writeFileSync(file, mine, { flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    const owner = ownerOf(file);
    if (owner && startTimeOf(owner.pid) === owner.start) {
      throw new RolloutError(
        'InvalidRequest',
        `a stack of this checkout already runs (process ${owner.pid}); stop it with Ctrl-C there`,
      );
    }
    writeFileSync(file, mine); // its owner was killed
  }
  return () => rmSync(file, { force: true });
}

/** Who holds the lock; undefined if the file was cut off while it was written. */
function ownerOf(file: string): { pid: number; start: string } | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}
