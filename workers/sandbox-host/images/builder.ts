import { existsSync, readFileSync } from 'node:fs';
import os from 'node:os';
import { findRuntime } from '../backends/apptainer-runtime.ts';
import { AS_ROOT, owned } from '../backends/owned.ts';
import { runQuietly } from '../backends/wait.ts';
import type { ImageSource } from './source.ts';

/** Options of unshare(1): who calls is root, and has the ids that /etc/subuid gives to him. */
const WITH_SUBORDINATE_IDS = [...AS_ROOT, '--map-auto'];
const AS_CALLER = ['--user', '--map-current-user'];

/**
 * The argv, up to the image and its source, that builds an image. What it starts ends with it, where that can be had:
 * the commands of a definition may leave programs in sessions of their own, and Apptainer does (`faked`).
 */
export async function builderOf(kind: ImageSource['kind'], program: string): Promise<string[]> {
  // What was checked is what is built: not what an earlier build of somebody else's left under the same digest.
  const uncached = kind === 'definition' ? [] : ['--disable-cache'];
  const build = [program, 'build', '--force', ...uncached];
  if (process.geteuid?.() === 0) return [...(await ownedIfPossible([])), ...build];
  if (kind !== 'definition') return [...(await ownedIfPossible(AS_CALLER)), ...build];
  // The commands of a definition are run as root, by its looks.
  const many = await ownedIfPossible(WITH_SUBORDINATE_IDS);
  if (many.length > 0) return [...many, ...build];
  if (hasSubordinateIds()) return [...build, '--fakeroot']; // unshare cannot give them before util-linux 2.38
  const { depth } = await findRuntime(program);
  // SingularityCE's --fakeroot wants ids of /etc/subuid; Apptainer's does without, and is another root for chown, too.
  return depth > 1
    ? [...(await ownedIfPossible(AS_ROOT)), ...build]
    : [...(await ownedIfPossible(AS_CALLER)), ...build, '--fakeroot'];
}

function hasSubordinateIds(): boolean {
  const { uid, username } = os.userInfo();
  const text = existsSync('/etc/subuid') ? readFileSync('/etc/subuid', 'utf8') : '';
  return text.split('\n').some((line) => [username, String(uid)].includes(line.split(':')[0] as string));
}

async function ownedIfPossible(user: readonly string[]): Promise<string[]> {
  const [file, ...args] = owned(user) as [string, ...string[]];
  const { ok } = await runQuietly(file, [...args, 'true'], { PATH: process.env.PATH ?? '' });
  return ok ? [file, ...args] : [];
}
