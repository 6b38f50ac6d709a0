import { createHash } from 'node:crypto';
import { readdir, readFile, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { Archive } from './archive.ts';
import { LEFT_BEHIND, TERMINAL_FILE, type TrajectoryStore } from './store.ts';
import { syncFolder } from './sync-folder.ts';

/** Rollouts whose files are moved at once: an archive far away is waited for. */
const AT_ONCE = 8;
/** Of 256 folders. */
const SPREAD = /^[0-9a-f]{2}$/;
/** A file that was never finished. */
const DRAFT = /\.draft$/;

/** Which files of a store are moved. */
export interface MoveOldOptions {
  /** Files that were last written before this, in milliseconds since the epoch; all files of a rollout have to be. */
  readonly before: number;
  /** Rollouts that Temporal has open are left alone, whatever the store says. */
  readonly open: ReadonlySet<string>;
  /** Only count what would be moved. */
  readonly dryRun: boolean;
}

/** What was moved, or would be. */
export interface MovedOld {
  rollouts: number;
  files: number;
  bytes: number;
  /** Rollouts that were left alone, and why. */
  readonly problems: { readonly rollout: string; readonly problem: string }[];
}

/**
 * Moves ledgers and trajectories of rollouts that ended long ago into an archive. Their terminal records are copied there
 * and stay. Nothing is deleted before the archive has given all of a rollout's files back as they are, so that whatever
 * ends this in the middle loses nothing; the next run goes on.
 */
export async function moveOld(
  store: TrajectoryStore,
  archive: Archive,
  options: MoveOldOptions,
): Promise<MovedOld> {
  const moved: MovedOld = { rollouts: 0, files: 0, bytes: 0, problems: [] };
  for (const spread of await readdir(store.folder)) {
    if (!SPREAD.test(spread)) continue;
    const queue = await readdir(path.join(store.folder, spread));
    const mover = async () => {
      for (let rollout = queue.pop(); rollout !== undefined; rollout = queue.pop()) {
        try {
          await moveOne(store, archive, rollout, path.join(spread, rollout), options, moved);
        } catch (error) {
          // One that cannot be moved keeps none of the others.
          moved.problems.push({ rollout, problem: messageOf(error) });
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, mover));
  }
  return moved;
}

async function moveOne(
  store: TrajectoryStore,
  archive: Archive,
  rollout: string,
  place: string,
  { before, open, dryRun }: MoveOldOptions,
  moved: MovedOld,
): Promise<void> {
  const folder = path.join(store.folder, place);
  const names = await readdir(folder);
  const files = names.filter(
    (name) => name !== TERMINAL_FILE && !DRAFT.test(name) && !LEFT_BEHIND.test(name),
  );
  if (!names.includes(TERMINAL_FILE) || open.has(rollout) || files.length === 0) return;
  const stats = await Promise.all(names.map((name) => stat(path.join(folder, name))));
  if (stats.some(({ mtimeMs }) => mtimeMs >= before)) return;
  const record = await store.getTerminal(rollout);
  let bytes = 0;
  for (const name of [...files, TERMINAL_FILE]) {
    const content = await readFile(path.join(folder, name));
    if (record?.trajectory?.uri.endsWith(`/${name}`)) mustMatch(content, record.trajectory.sha256, name);
    if (!dryRun) await archive.put(path.posix.join(...place.split(path.sep), name), content);
    if (name !== TERMINAL_FILE) bytes += content.length;
  }
  if (!dryRun) {
    for (const name of names) if (name !== TERMINAL_FILE) await rm(path.join(folder, name), { force: true });
    await syncFolder(folder);
  }
  moved.rollouts++;
  moved.files += files.length;
  moved.bytes += bytes;
}

function mustMatch(content: Uint8Array, sha256: string, name: string): void {
  if (createHash('sha256').update(content).digest('hex') === sha256) return;
  throw new RolloutError('StoreCorrupt', `${name} does not match its checksum: left where it is`);
}
