import { realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { isBelow } from '../activities/below.ts';
import type { Config } from '../config/load.ts';
import type { Caller } from './auth.ts';

/**
 * The file of this machine that a caller names, links followed: below `gateway.taskFolder` where that is set; where it is
 * not, any, for those who may do everything. Devices and pipes are no files: they have no end, or no beginning.
 * @throws Error that says why not
 */
export async function taskFile(
  file: string,
  { taskFolder }: Config['gateway'],
  caller: Caller | undefined,
): Promise<string> {
  const [above, place] = [taskFolder && path.resolve(taskFolder), path.resolve(file)];
  if (above === undefined) {
    if (caller && !caller.scopes.includes('admin')) {
      throw new Error('files are named with the scope admin, or below gateway.taskFolder, which is not set');
    }
  } else if (!isBelow(place, above)) throw new Error(`is not below ${above} (gateway.taskFolder)`);
  const real = await realpath(place);
  if (above !== undefined && !isBelow(real, await realpath(above))) {
    throw new Error(`leads out of ${above} (gateway.taskFolder)`);
  }
  if (!(await stat(real)).isFile()) throw new Error('is no file');
  return real;
}
