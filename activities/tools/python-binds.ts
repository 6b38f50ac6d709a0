import { readFileSync, realpathSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { RolloutError } from '../../contracts/failures.ts';
import type { SandboxSpec } from '../../contracts/sandbox.ts';

/**
 * What of the host a sandbox must show, at the same paths, for the Python of a virtual environment to run there:
 * the environment, and the installation it was made from, unless that lies in /usr, which every sandbox shows.
 * @throws RolloutError HandlerFailed if that would show a home folder, or if `python` is of no environment
 */
export function pythonBinds(python: string): SandboxSpec['binds'] {
  const environment = path.dirname(path.dirname(python));
  try {
    const settings = readFileSync(path.join(environment, 'pyvenv.cfg'), 'utf8');
    const home = /^home *= *(.+?) *$/m.exec(settings)?.[1];
    // The interpreter may be reached by symlinks, of which both ends must be there.
    const interpreters = [...(home ? [path.join(home, 'python')] : []), realpathSync(python)];
    const folders = new Set([environment, ...interpreters.map((file) => path.dirname(path.dirname(file)))]);
    return [...folders]
      .filter((folder) => folder !== '/usr' && !folder.startsWith('/usr/'))
      .map((folder) => {
        refuseHome(folder, python);
        return { source: folder, target: folder };
      });
  } catch (error) {
    if (error instanceof RolloutError) throw error;
    throw new RolloutError('HandlerFailed', `${python} is not of a virtual environment`, { cause: error });
  }
}

function refuseHome(folder: string, python: string): void {
  const fromFolder = path.relative(folder, os.homedir());
  if (fromFolder.startsWith('..')) return;
  throw new RolloutError(
    'HandlerFailed',
    `${python} needs ${folder} in the sandbox, and that holds a home folder: set up with a Python of its own prefix`,
  );
}
