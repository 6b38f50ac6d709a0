import { execFile } from 'node:child_process';
import { mkdir, open, rm, statfs } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';

const MIB = 1024 ** 2;
/** Bytes of the small disk: the rollouts of a full round need a few of them. */
const SIZE = 128 * MIB;

/** A folder that can be made full. It takes a file system of its own, which only root can mount. */
export class Volume {
  readonly folder: string;
  /** Why it cannot be made full; null if it can. */
  readonly problem: string | null;

  private constructor(folder: string, problem: string | null) {
    this.folder = folder;
    this.problem = problem;
  }

  static async make(folder: string): Promise<Volume> {
    await mkdir(folder, { recursive: true });
    if (process.getuid?.() !== 0) return new Volume(folder, 'only root can mount a small disk');
    try {
      const options = ['-t', 'tmpfs', '-o', `size=${SIZE},mode=700`, 'tmpfs', folder];
      await promisify(execFile)('/bin/mount', options);
      return new Volume(folder, null);
    } catch (error) {
      return new Volume(folder, `no small disk: ${String(error)}`);
    }
  }

  /** Takes all its space. Asked again, it takes what has become free. */
  async fill(): Promise<void> {
    const ballast = await open(this.ballast, 'a');
    try {
      for (let step = 16 * MIB; step >= 4096; ) {
        const { bavail, bsize } = await statfs(this.folder);
        if (bavail === 0) break;
        try {
          await ballast.write(Buffer.alloc(Math.min(step, bavail * bsize)));
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
          step /= 2;
        }
      }
    } finally {
      await ballast.close();
    }
  }

  /** Gives the space back. */
  async free(): Promise<void> {
    await rm(this.ballast, { force: true });
  }

  async remove(): Promise<void> {
    if (this.problem === null) await promisify(execFile)('/bin/umount', [this.folder]);
    await rm(this.folder, { recursive: true, force: true });
  }

  private get ballast(): string {
    return path.join(this.folder, 'ballast');
  }
}
