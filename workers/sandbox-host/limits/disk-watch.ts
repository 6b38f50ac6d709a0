import { statfsSync, statSync } from 'node:fs';
import type { Backend, Handle } from '../backends/backend.ts';
import { treeSize } from './disk.ts';
import { bytesBeingWritten } from './open-files.ts';
import { onBeat } from './pulse.ts';
import { Rest, UNSEEN_PARTS, unseen } from './rest.ts';
import { unlinkedBytes } from './unlinked.ts';

/** Milliseconds after which the disk is counted though nothing tells of writing, while commands run. */
const RECOUNT_MS = 10_000;

export interface DiskWatchOptions {
  readonly backend: Backend;
  readonly handle: Handle;
  /** The workspace on the host. */
  readonly workspaceDir: string;
  /** Called when growth over the limit is to end; `again`: it went on after the last call, in the same command. */
  readonly over: (again: boolean) => void;
  readonly failed: (error: unknown) => void;
}

/**
 * Keeps the workspace within its limit. That the file system has less free space raises a suspicion; a count of the
 * whole tree, which takes long, decides. Files that are being written are added up sooner: if they alone are too much,
 * nothing else matters.
 */
export class DiskWatch {
  private readonly options: DiskWatchOptions;
  private readonly counting = new Rest();
  private readonly adding = new Rest();
  private seen: { bytes: number; files: number; at: number };
  /** Bytes that the machine has been given to write since, as far as that was seen. */
  private given = 0;
  /** Bytes of the workspace by the last count. */
  private counted = 0;
  private stopBeat: (() => void) | undefined;
  private stopped = false;
  private ranSinceCount = false;
  /** How often growth has been ended, and whether it was while the commands ran that run now. */
  private ends = 0;
  private endedNow = false;
  /** Above this the workspace is over its limit: grows when ending commands left it where it was. */
  private ceiling: { bytes: number; files: number };

  constructor(options: DiskWatchOptions) {
    this.options = options;
    const { diskBytes, diskFiles } = options.handle.spec.limits;
    this.ceiling = { bytes: diskBytes, files: diskFiles };
    this.seen = this.free();
  }

  /** A command runs: calls `look` whenever the machine has been given more to write than a part of the limit. */
  begin(look: () => void): void {
    this.ranSinceCount = true;
    this.endedNow = false;
    if (this.stopBeat) return;
    let [least, last] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    this.stopBeat = onBeat(({ unwritten }) => {
      this.given += Math.max(0, unwritten - last);
      last = unwritten;
      if (unwritten - least > unseen(this.options.handle.spec.limits.diskBytes)) {
        least = unwritten;
        look();
      }
      least = Math.min(least, unwritten);
    });
  }

  /** None does any more. */
  end(): void {
    this.stopBeat?.();
    this.stopBeat = undefined;
  }

  stop(): void {
    this.stopped = true;
    this.end();
  }

  /** `busy`: commands run. */
  look(busy: boolean): void {
    const now = this.free();
    const { diskBytes, diskFiles } = this.options.handle.spec.limits;
    const grown = this.seen.bytes - now.bytes;
    // Others may have freed as much as it took.
    if (this.counted + Math.max(grown, this.given) > this.ceiling.bytes)
      this.adding.run(() => this.add(), this.options.failed);
    const suspicious = grown > unseen(diskBytes) || this.seen.files - now.files > diskFiles / UNSEEN_PARTS;
    if (!suspicious && !(this.ranSinceCount && now.at - this.seen.at > RECOUNT_MS)) return;
    this.counting.run(() => this.count(busy), this.options.failed);
  }

  private async add(): Promise<void> {
    const { backend, handle } = this.options;
    const { ends } = this;
    const bytes = await bytesBeingWritten(backend.processes(handle), handle.workspace);
    if (this.ends === ends && bytes > this.ceiling.bytes) await this.endGrowth();
  }

  private async count(busy: boolean): Promise<void> {
    this.seen = this.free();
    this.given = 0;
    this.ranSinceCount = busy;
    const { ends } = this;
    const { bytes, files } = await this.size();
    if (this.ends !== ends) return; // a part of it is from before growth was ended
    this.counted = bytes;
    const { diskBytes, diskFiles } = this.options.handle.spec.limits;
    if (bytes <= diskBytes && files <= diskFiles) this.ceiling = { bytes: diskBytes, files: diskFiles };
    if (bytes > this.ceiling.bytes || files > this.ceiling.files) await this.endGrowth();
  }

  /**
   * What has been written stays: the next command may be the one that removes it. Only growth is stopped. What the
   * last writes come to is found by another count, and what has not reached the disk by then is a small part.
   */
  private async endGrowth(): Promise<void> {
    if (this.stopped) return;
    const ends = ++this.ends;
    this.options.over(this.endedNow);
    this.endedNow = true;
    const { bytes, files } = await this.size();
    if (this.ends !== ends) return;
    const { diskBytes, diskFiles } = this.options.handle.spec.limits;
    this.counted = bytes;
    this.ceiling = {
      bytes: Math.max(bytes, diskBytes) + unseen(diskBytes),
      files: Math.max(files, diskFiles) + diskFiles / UNSEEN_PARTS,
    };
  }

  private async size() {
    const { backend, handle, workspaceDir } = this.options;
    const size = await treeSize(backend, handle, workspaceDir);
    if (this.stopped) return { bytes: 0, files: 0 };
    const { dev } = statSync(workspaceDir);
    const unlinked = await unlinkedBytes(backend.processes(handle), dev, this.countedDevices());
    return { bytes: size.bytes + unlinked.disk, files: size.files };
  }

  private free() {
    const { bfree, bsize, ffree } = statfsSync(this.options.workspaceDir);
    return { bytes: bfree * bsize, files: ffree, at: performance.now() };
  }

  private countedDevices(): Set<number> {
    const { memoryFolders = [] } = this.options.handle;
    return new Set(memoryFolders.map((folder) => statSync(folder).dev));
  }
}
