import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { RolloutError } from '../../contracts/failures.ts';
import { temporaryFolder } from './paths.ts';
import { isAlive, namesAsText, type ProcessName, readNames } from './process-names.ts';
import { type ProcessInfo, processesOf, processIds, processInfo, signal, ticks } from './processes.ts';
import { removeTree } from './remove-tree.ts';

/** Milliseconds that an earlier host may take to be gone. */
const HAND_OVER_MS = 2000;
/** Milliseconds that killed processes may take to be gone. */
const DEATH_MS = 5000;
/** Milliseconds that a sandbox may take to stand: a large image from a slow file system. */
export const START_MS = 120_000;

/**
 * Marks `root` as this process's. An earlier host that is just ending is waited for.
 * @throws RolloutError SandboxUnavailable when another process that lives holds it
 */
export async function takeOwnership(root: string, ownerFile: string): Promise<void> {
  const deadline = performance.now() + HAND_OVER_MS;
  for (;;) {
    const owner = existsSync(ownerFile) ? readNames(await readFile(ownerFile, 'utf8')) : [];
    const other = owner.find(isAlive);
    if (!other) break;
    if (performance.now() > deadline) {
      throw new RolloutError(
        'SandboxUnavailable',
        `the sandbox host with process id ${other.pid} already holds ${root}: stop it, or set another stateDir`,
      );
    }
    await delay(50);
  }
  await writeFile(`${ownerFile}.new`, namesAsText([processInfo(process.pid)].flatMap((own) => own ?? [])), {
    mode: 0o600,
  });
  await rename(`${ownerFile}.new`, ownerFile);
}

/** Notes which processes hold a sandbox, for the next host to find if this one dies. */
export function recordAnchors(folder: string, anchors: readonly ProcessInfo[]): void {
  writeFileSync(path.join(folder, 'processes.json'), namesAsText(anchors), { mode: 0o600 });
}

/** Notes whose a sandbox is, so that the next host can say who lost it. */
export function recordRollout(folder: string, rolloutId: string): void {
  writeFileSync(path.join(folder, 'rollout'), rolloutId, { mode: 0o600 });
}

/** The file in a sandbox's folder that names the snapshot which is being written; it goes with its host. */
export function draftNote(folder: string): string {
  return path.join(folder, 'draft');
}

async function removeDraft(folder: string): Promise<void> {
  const note = draftNote(folder);
  const draft = existsSync(note) ? readFileSync(note, 'utf8') : '';
  if (draft.endsWith('.draft')) await rm(draft, { force: true }); // else it was killed before it had noted which
}

function rolloutOf(folder: string): string | null {
  const file = path.join(folder, 'rollout');
  return existsSync(file) ? readFileSync(file, 'utf8') : null;
}

/** What {@link recordAnchors} noted. */
export function recordedAnchors(folder: string): ProcessName[] {
  const recorded = path.join(folder, 'processes.json');
  return existsSync(recorded) ? readNames(readFileSync(recorded, 'utf8')) : [];
}

/**
 * Helpers of file systems that outlived the runtime which started them: nothing in them names their sandbox, but they
 * are in the session that the first of what was recorded began, were started while it was made, and serve FUSE.
 */
export function helpersOf(recorded: readonly ProcessName[]): ProcessInfo[] {
  return recorded.flatMap(({ pid: session, startTicks }) => {
    const leader = processInfo(session);
    if (leader && leader.startTicks !== startTicks) return []; // the number has been given to another
    return processIds().flatMap((pid) => {
      const info = processInfo(pid);
      if (info?.session !== session || pid === session || info.zombie) return [];
      const age = info.startTicks - startTicks;
      return age >= 0 && age <= ticks(START_MS) && servesFuse(pid) ? info : [];
    });
  });
}

function servesFuse(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`) === '/dev/fuse');
  } catch {
    return false; // it has ended, or is not ours to look at
  }
}

/** What an earlier host left, cleared. */
export interface Cleared {
  /** Sandboxes with the rollouts that lost them; null: it was killed before it had noted which. */
  readonly sandboxes: ReadonlyMap<string, string | null>;
  readonly processes: number;
}

/**
 * Kills and removes the sandboxes that an earlier host left. Only what it had recorded as its own.
 * @throws RolloutError SandboxUnavailable if a process does not die
 */
export async function clearLeftOvers(sandboxesDir: string): Promise<Cleared> {
  const names = await readdir(sandboxesDir);
  const sandboxes = new Map<string, string | null>();
  let processes = 0;
  for (const name of names) {
    const folder = path.join(sandboxesDir, name);
    sandboxes.set(name, rolloutOf(folder));
    const anchors = recordedAnchors(folder);
    // A host that was killed while it made a sandbox has recorded nothing yet.
    const left = () => [...anchors.filter(isAlive), ...processesOf(name), ...helpersOf(anchors)];
    const deadline = performance.now() + DEATH_MS;
    processes += left().length;
    for (let alive = left(); alive.length > 0; alive = left()) {
      if (performance.now() > deadline) {
        throw new RolloutError('SandboxUnavailable', `processes of left-over sandbox ${name} do not die`);
      }
      for (const { pid } of alive) signal(pid, 'SIGKILL');
      await delay(10);
    }
    await removeDraft(folder);
    await removeTree(temporaryFolder(name));
    await removeTree(folder);
  }
  return { sandboxes, processes };
}
