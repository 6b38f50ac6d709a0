import { existsSync } from 'node:fs';
import { findProgram } from '../../config/programs.ts';
import { installPackages } from '../debian.ts';

/** Programs that making and running a machine takes, and Debian's packages of them. */
const NEEDED: Readonly<Record<string, string>> = {
  'linux.uml': 'user-mode-linux',
  debootstrap: 'debootstrap',
  mke2fs: 'e2fsprogs',
  cc: 'gcc',
};
const FOLDERS = '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin';

/** Where a program is; '' if it is not. */
export function programPath(name: string): string {
  return findProgram([name], FOLDERS);
}

/** Installs what is missing. @throws Error that says what this machine lacks */
export async function bringPackages(): Promise<void> {
  const missing = Object.entries(NEEDED).flatMap(([program, name]) => (programPath(program) ? [] : name));
  if (!existsSync('/etc/debian_version') || process.arch !== 'x64' || process.geteuid?.() !== 0) {
    const packages = missing.length > 0 ? `, and needs ${missing.join(', ')}` : '';
    throw new Error(`this takes root on Debian, x86-64: it makes a Debian of its own${packages}`);
  }
  if (missing.length === 0) return;
  await installPackages(missing);
}
