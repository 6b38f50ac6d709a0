import { createHash } from 'node:crypto';
import { chown, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { RolloutError } from '../../../contracts/failures.ts';
import type {
  DiffWorkspace,
  MarkStart,
  RestoredWorkspace,
  RestoreWorkspace,
  SnapshotWorkspace,
  StartMark,
  WorkspaceDiff,
  WorkspaceSnapshot,
} from '../../../contracts/workspace.ts';
import type { Handle } from '../backends/backend.ts';
import { draftNote } from '../left-overs.ts';
import { readChecked, writeWhole } from './archive-file.ts';
import { DIFF, MISSING, NOT_AS_ASKED, RESTORE, SNAPSHOT, START, UNREADABLE } from './scripts.ts';
import type { SideEnd, SideProgram, SideSandboxes } from './side-sandbox.ts';

/** Bytes of any one file that git may write. */
const GIT_FILE_BYTES = 16 * 1024 ** 3;

/** As the schema gives it, defaults filled in. */
type Asked<T> = Omit<{ [K in keyof T]-?: Exclude<T[K], undefined> }, 'fence'>;

/**
 * The workspace of one sandbox as a whole: what was changed in it, and how it gets into a file and out of one. One
 * thing at a time.
 */
export class Workspace {
  private readonly side: SideSandboxes;
  private readonly folder: string;
  private readonly start: string;
  private readonly sandbox: Pick<Handle, 'ownerUid'>;
  private queue: Promise<unknown> = Promise.resolve();

  /** `folder`: the workspace of `sandbox` on the host. Beside it a folder `start` is made, which the agent never sees. */
  constructor(side: SideSandboxes, folder: string, sandbox: Pick<Handle, 'ownerUid'>) {
    this.side = side;
    this.folder = folder;
    this.start = path.join(path.dirname(folder), 'start');
    this.sandbox = sandbox;
  }

  /** Later diffs compare with what is there now. @throws RolloutError SandboxFailed, ProgramMissing */
  markStart({ timeoutMs }: Asked<MarkStart>, signal: AbortSignal): Promise<StartMark> {
    return this.inTurn(async () => {
      const began = performance.now();
      let tree = '';
      const stdout = (chunk: Buffer): boolean => {
        tree += chunk;
        return tree.length < 100;
      };
      const end = await this.run({
        ...{ script: START, args: [], stdout, fileBytes: GIT_FILE_BYTES, timeoutMs, signal },
        writable: ['start'],
      });
      if (end.exitCode !== 0) throw failed('the start could not be recorded', end);
      return { tree: tree.trim(), ms: performance.now() - began };
    });
  }

  /** @throws RolloutError InvalidRequest (no start was marked), SandboxFailed, ProgramMissing */
  diff(asked: Asked<DiffWorkspace>, signal: AbortSignal): Promise<WorkspaceDiff> {
    const { folder, exclude, maxBytes, timeoutMs } = asked;
    return this.inTurn(async () => {
      const began = performance.now();
      const parts: Buffer[] = [];
      let bytes = 0;
      const stdout = (chunk: Buffer): boolean => {
        parts.push(chunk);
        bytes += chunk.length;
        return bytes <= maxBytes;
      };
      const end = await this.run({
        ...{ script: DIFF, args: [folder, ...exclude], stdout, fileBytes: GIT_FILE_BYTES, timeoutMs, signal },
        // Git marks what it finds there as in use; where it cannot, it makes copies.
        writable: ['start'],
      });
      const why = tooLarge(end, `the patch has more than ${maxBytes} bytes`, timeoutMs);
      if (why !== null) return { status: 'tooLarge', why };
      if (end.exitCode === NOT_AS_ASKED) {
        throw new RolloutError('InvalidRequest', 'no start was marked to compare with');
      }
      if (end.exitCode !== 0) throw failed('git could not take the diff', end);
      const patch = Buffer.concat(parts);
      const [files = 0, omitted = 0] = end.stderr.split('\n').slice(-2).map(Number);
      const sha256 = createHash('sha256').update(patch).digest('hex');
      const ms = performance.now() - began;
      return { status: 'ok', patch: patch.toString('base64'), bytes, sha256, files, omitted, ms };
    });
  }

  /** @throws RolloutError StoreFailed, SandboxFailed, ProgramMissing */
  snapshot(asked: Asked<SnapshotWorkspace>, signal: AbortSignal): Promise<WorkspaceSnapshot> {
    const { file, maxBytes, timeoutMs } = asked;
    return this.inTurn(async () => {
      const began = performance.now();
      let omitted = 0;
      const written = await writeWhole(file, draftNote(path.dirname(this.folder)), async (fd) => {
        const end = await this.run({
          ...{ script: SNAPSHOT, args: [], stdout: fd, fileBytes: maxBytes, timeoutMs, signal },
          writable: [],
        });
        const why = tooLarge(end, `the archive has more than ${maxBytes} bytes`, timeoutMs);
        if (why !== null) return why;
        if (end.exitCode !== 0) throw failed('tar could not archive the workspace', end);
        omitted = Number(end.stderr.split('\n').at(-1));
        return null;
      });
      if ('why' in written) return { status: 'tooLarge', why: written.why };
      return { status: 'ok', file, ...written, omitted, ms: performance.now() - began };
    });
  }

  /** @throws RolloutError StoreCorrupt, StoreFailed, InvalidRequest (not empty), SandboxFailed, ProgramMissing */
  restore(
    asked: Omit<Asked<RestoreWorkspace>, 'hadShells'>,
    signal: AbortSignal,
  ): Promise<RestoredWorkspace> {
    const { file, sha256, timeoutMs } = asked;
    return this.inTurn(async () => {
      const began = performance.now();
      const bytes = await readChecked(file, sha256, async (fd) => {
        const end = await this.run({
          ...{ script: RESTORE, args: [], stdin: fd, stdout: () => true, fileBytes: GIT_FILE_BYTES },
          ...{ timeoutMs, signal, writable: ['workspace', 'start'] },
        });
        if (end.exitCode === NOT_AS_ASKED) {
          throw new RolloutError(
            'InvalidRequest',
            'the workspace is not empty: restore into a fresh sandbox',
          );
        }
        if (end.exitCode !== 0) throw failed('tar could not fill the workspace', end);
      });
      return { bytes, ms: performance.now() - began };
    });
  }

  /** Resolves when nothing of it runs any more. */
  async idle(): Promise<void> {
    await this.queue;
  }

  private async run({
    writable,
    ...program
  }: Omit<SideProgram, 'shown' | 'besides'> & { writable: string[] }) {
    await mkdir(this.start, { recursive: true });
    const { ownerUid } = this.sandbox;
    if (ownerUid !== null) await chown(this.start, ownerUid, ownerUid);
    const shown = [this.folder, this.start].map((folder) => ({
      folder,
      writable: writable.includes(path.basename(folder)),
    }));
    return this.side.run({ ...program, shown, besides: this.sandbox });
  }

  private inTurn<T>(task: () => Promise<T>): Promise<T> {
    const result = this.queue.then(task);
    this.queue = result.catch(() => {}); // its caller has the error
    return result;
  }
}

/** Why it was too much, if it was: what an agent made is not the fault of this host. */
function tooLarge(
  { exitCode, stderr, timedOut, limit }: SideEnd,
  more: string,
  timeoutMs: number,
): string | null {
  if (exitCode === UNREADABLE) return stderr;
  if (timedOut) return `it took more than ${timeoutMs / 1000} s`;
  if (limit === 'output' || limit === 'disk') return more;
  return limit === null ? null : `it takes more than the limit of ${limit}`;
}

function failed(what: string, { exitCode, stderr, timedOut }: SideEnd): RolloutError {
  if (exitCode === MISSING) {
    return new RolloutError('ProgramMissing', `${stderr || 'a program'} is not installed on this host`);
  }
  return new RolloutError('SandboxFailed', `${what}: ${timedOut ? 'it took too long' : stderr}`);
}
