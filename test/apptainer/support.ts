import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  type Stats,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { findProgram } from '../../config/programs.ts';
import type { BuildOptions } from '../../workers/sandbox-host/images/build.ts';
import { processIds, processInfo } from '../../workers/sandbox-host/processes.ts';
import { APPTAINER } from '../support/apptainer.ts';

/** How tests build images. */
export function buildOptions(cacheDir: string): BuildOptions {
  return { program: APPTAINER, cacheDir, maxBytes: 4 * 1024 ** 3, minFreeBytes: 0 };
}

const PROGRAMS =
  'bash sh ls cat env id mkdir readlink dirname mktemp chmod mv head stat sleep true touch rm dd grep pgrep find';

/** Makes a small root file system of these and `more` of this machine's programs, without /usr of the host. */
export function makeRoot(root: string, more: readonly string[] = []): void {
  for (const folder of ['usr/bin', 'etc', 'proc', 'sys', 'dev', 'tmp', 'root', 'var/tmp', 'lib64']) {
    mkdirSync(path.join(root, folder), { recursive: true });
  }
  symlinkSync('usr/bin', path.join(root, 'bin'));
  writeFileSync(path.join(root, 'etc/release-of-the-image'), 'of the image\n');
  for (const name of [...PROGRAMS.split(' '), ...more]) {
    const program = path.isAbsolute(name) ? name : findProgram([name]);
    copyFileSync(realpathSync(program), path.join(root, 'usr/bin', path.basename(name)));
    const listing = execFileSync('/usr/bin/ldd', [program], { encoding: 'utf8', env: {} });
    for (const [, library] of listing.matchAll(/(\/\S+) \(/g)) copyLibrary(root, library as string);
  }
  // The locale that everything runs in; a C library that has it built in needs no files.
  const locale = '/usr/lib/locale/C.utf8';
  if (existsSync(locale)) cpSync(locale, path.join(root, locale), { recursive: true });
}

function copyLibrary(root: string, library: string): void {
  const target = path.join(root, library);
  mkdirSync(path.dirname(target), { recursive: true });
  copyFileSync(realpathSync(library), target);
}

/** Live FUSE helpers that show this image. */
export function helpersOf(image: string): number[] {
  const { dev, ino } = statSync(image);
  return alive().filter((pid) => {
    if (!read(pid, 'comm').startsWith('squashfuse')) return false;
    return openFiles(pid).some((file) => file.dev === dev && file.ino === ino);
  });
}

/** Live processes, but this one, in whose environment, arguments or mounts `text` appears. */
export function processesWith(text: string): number[] {
  const others = alive().filter((pid) => pid !== process.pid);
  return others.filter((pid) =>
    ['environ', 'cmdline', 'mountinfo'].some((name) => read(pid, name).includes(text)),
  );
}

function openFiles(pid: number): Stats[] {
  try {
    const folder = `/proc/${pid}/fd`;
    return readdirSync(folder).map((fd) => statSync(`${folder}/${fd}`));
  } catch {
    return []; // it has ended
  }
}

function alive(): number[] {
  return processIds().filter((pid) => processInfo(pid)?.zombie === false);
}

function read(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch {
    return ''; // it has ended
  }
}
