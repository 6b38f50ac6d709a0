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
  /** Called when growth over the limit is to end. */
  readonly over: () => void;
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
  /** Bytes of the workspace by the last count. */
  private counted = 0;
  private stopBeat: (() => void) | undefined;
  private stopped = false;
  private ranSinceCount = false;
  /** Growth has been ended, and what was written until then may not be counted yet. */
  private settling = false;
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
    if (this.stopBeat) return;
    let least = Number.POSITIVE_INFINITY;
    this.stopBeat = onBeat(({ unwritten }) => {
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
    if (this.counted + grown > this.ceiling.bytes) this.adding.run(() => this.add(), this.options.failed);
    const suspicious = grown > unseen(diskBytes) || this.seen.files - now.files > diskFiles / UNSEEN_PARTS;
    if (!suspicious && !(this.ranSinceCount && now.at - this.seen.at > RECOUNT_MS)) return;
    this.counting.run(() => this.count(busy), this.options.failed);
  }

  private async add(): Promise<void> {
    const { backend, handle } = this.options;
    const bytes = await bytesBeingWritten(backend.processes(handle), handle.workspace);
    if (bytes > this.ceiling.bytes && !this.stopped && !this.settling) this.endGrowth(bytes, 0);
  }

  private async count(busy: boolean): Promise<void> {
    const { backend, handle, workspaceDir } = this.options;
    this.seen = this.free();
    this.ranSinceCount = busy;
    const wasSettling = this.settling;
    const size = await treeSize(backend, handle, workspaceDir);
    if (this.stopped) return;
    const { dev } = statSync(workspaceDir);
    const unlinked = await unlinkedBytes(backend.processes(handle), dev, this.countedDevices());
    const [bytes, files] = [size.bytes + unlinked.disk, size.files];
    this.counted = bytes;
    if (this.settling !== wasSettling) return; // a part of it is from before growth was ended
    const { diskBytes, diskFiles } = handle.spec.limits;
    if (bytes <= diskBytes && files <= diskFiles) this.ceiling = { bytes: diskBytes, files: diskFiles };
    if (bytes > this.ceiling.bytes || files > this.ceiling.files) this.endGrowth(bytes, files);
    else this.settling = false;
  }

  /** What has been written stays: the next command may be the one that removes it. Only growth is stopped. */
  private endGrowth(bytes: number, files: number): void {
    const { diskBytes, diskFiles } = this.options.handle.spec.limits;
    this.ceiling = { bytes: Math.max(bytes, diskBytes), files: Math.max(files, diskFiles) };
    this.settling = !this.settling;
    if (this.settling) this.options.over(); // else it was written between the last look and the end
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
