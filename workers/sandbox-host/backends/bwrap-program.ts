import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, realpathSync, renameSync } from 'node:fs';
import path from 'node:path';
import { writeEtcFiles } from './system-files.ts';

/** How bubblewrap is started on this host. */
export interface BwrapProgram {
  readonly file: string;
  /** Folder with a copy of the program (`bwrap`) and the libraries that came with it. */
  readonly folder: string;
  /** An empty folder to mount on, in a mount namespace of one's own. */
  readonly stage: string;
}

/**
 * Writes what all sandboxes share. A host that runs as root starts bubblewrap as another user, who may not
 * reach the place where it is installed: `copied` puts it, with the libraries that came with it, aside.
 * @throws when the program cannot be read.
 */
export function prepareBwrap(bwrapPath: string, sharedDir: string, copied: boolean): BwrapProgram {
  const file = realpathSync(bwrapPath);
  const program = { file, folder: path.join(sharedDir, 'tools'), stage: path.join(sharedDir, 'stage') };
  for (const folder of [program.folder, program.stage]) mkdirSync(folder, { recursive: true });
  writeEtcFiles(sharedDir);
  if (copied) {
    for (const source of [file, ...ownLibraries(file)]) {
      const name = source === file ? 'bwrap' : path.basename(source);
      const target = path.join(program.folder, name);
      // Beside and renamed: a copy that runs cannot be written to.
      copyFileSync(source, `${target}.new`);
      chmodSync(`${target}.new`, 0o755);
      renameSync(`${target}.new`, target);
    }
  }
  return program;
}

/** Libraries that the program loads from elsewhere than the system's folders. */
function ownLibraries(file: string): string[] {
  const listing = execFileSync('/usr/bin/ldd', [file], { encoding: 'utf8', env: {} });
  return [...listing.matchAll(/=> (\/\S+)/g)]
    .map((match) => match[1] as string)
    .filter((library) => !/^\/(usr\/)?lib(32|64|x32)?\//.test(library));
}
