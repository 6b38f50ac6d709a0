import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { writeEtcFiles } from './system-files.ts';

/**
 * Programs of the host that prepare what runs inside. Before the filter of system calls is set nothing of an image
 * runs, and after it nothing has to.
 */
const TOOLS = ['/bin/bash', '/usr/bin/setpriv', '/usr/bin/mount', '/usr/bin/umount', '/usr/bin/mkdir'];

/** Name of the loader among the tools: they run by it, with the host's libraries beside it. */
export const LOADER = 'loader';

/** Files that all sandboxes of this backend use. */
export interface ApptainerShared {
  /** Folder with {@link TOOLS}, their libraries and {@link LOADER}. */
  readonly tools: string;
  /** An empty file and an empty folder, to cover others with. */
  readonly empty: string;
  readonly emptyFolder: string;
  /** To mount on. */
  readonly stage: string;
}

/** Writes them below `sharedDir`. @throws when a program is missing. */
export function writeApptainerShared(sharedDir: string): ApptainerShared {
  const shared = {
    tools: path.join(sharedDir, 'tools'),
    empty: path.join(sharedDir, 'empty'),
    emptyFolder: path.join(sharedDir, 'nothing'),
    stage: path.join(sharedDir, 'stage'),
  };
  for (const folder of [shared.tools, shared.emptyFolder, shared.stage])
    mkdirSync(folder, { recursive: true });
  writeFileSync(shared.empty, '');
  writeEtcFiles(sharedDir);
  for (const tool of TOOLS) copyWithLibraries(tool, shared.tools);
  return shared;
}

function copyWithLibraries(program: string, folder: string): void {
  copy(realpathSync(program), path.join(folder, path.basename(program)));
  const listing = execFileSync('/usr/bin/ldd', [program], { encoding: 'utf8', env: {} });
  for (const [, name, target, loader] of listing.matchAll(/^\s*(?:(\S+) => (\/\S+)|(\/\S+)) \(/gm)) {
    if (loader) copy(loader, path.join(folder, LOADER));
    else if (name && target) copy(target, path.join(folder, path.basename(name)));
  }
}

function copy(source: string, target: string): void {
  // Beside and renamed: a copy that runs cannot be written to.
  copyFileSync(source, `${target}.new`);
  chmodSync(`${target}.new`, 0o755);
  renameSync(`${target}.new`, target);
}

/**
 * An image without content, for a sandbox that shows the host's own /usr: mount points, which are the sandbox's
 * (`ownerUid`; null: this process's user) to write to, and the links into /usr that this system has.
 */
export function writeHostRoot(folder: string, ownerUid: number | null): void {
  for (const name of ['usr', 'etc', 'proc', 'sys', 'dev', 'tmp', 'root', 'run', 'var', 'var/tmp']) {
    mkdirSync(path.join(folder, name), { recursive: true });
    if (ownerUid !== null) chownSync(path.join(folder, name), ownerUid, ownerUid);
  }
  if (ownerUid !== null) chownSync(folder, ownerUid, ownerUid);
  for (const name of SYSTEM_FOLDERS) {
    if (!existsSync(name)) continue;
    const target = path.join(folder, name);
    if (!isLink(name)) mkdirSync(target, { recursive: true });
    else if (!isLink(target)) symlinkSync(readlinkSync(name), target);
  }
}

const SYSTEM_FOLDERS = ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'];

/** Folders of the host that a sandbox without an image shows. */
export function hostFolders(): string[] {
  return ['/usr', ...SYSTEM_FOLDERS.filter((name) => existsSync(name) && !isLink(name))];
}

function isLink(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink() === true;
}
