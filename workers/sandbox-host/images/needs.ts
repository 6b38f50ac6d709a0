import { statSync } from 'node:fs';
import { findProgram } from '../../../config/programs.ts';

/** Where Apptainer also looks for its helpers. */
const ALSO = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** What this machine lacks for SIF files in sandboxes, each with what to do; folders as images need none of it. */
export function missingForImages(): string[] {
  const missing: string[] = [];
  if (!findProgram(['squashfuse_ll', 'squashfuse'], ALSO)) missing.push('install squashfuse');
  if (!findProgram(['fuse-overlayfs'], ALSO)) missing.push('install fuse-overlayfs');
  const fuse = statSync('/dev/fuse', { throwIfNoEntry: false });
  if (!fuse) missing.push('load the kernel module fuse (/dev/fuse is missing)');
  else if ((fuse.mode & 0o006) !== 0o006)
    missing.push('open /dev/fuse to all users: `sudo chmod 666 /dev/fuse`');
  return missing;
}
