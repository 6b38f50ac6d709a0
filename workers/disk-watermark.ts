import { statfs } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from '@temporalio/worker';

/** What a {@link DiskWatermark} watches. */
export interface DiskWatermarkOptions {
  /** Folders that rollouts write to, by what they hold; one that is not there yet is where its parent is. */
  readonly folders: Readonly<Record<string, string>>;
  /** Bytes that each of their file systems has to have free. */
  readonly minFreeBytes: number;
  readonly logger: Pick<Logger, 'warn' | 'info'>;
}

/**
 * Says whether there is disk for another rollout: before a disk is full those that run would fail to record what they
 * do, so that no other is begun. Says once when that begins and when it is over.
 */
export class DiskWatermark {
  private readonly options: DiskWatermarkOptions;
  private full = false;

  constructor(options: DiskWatermarkOptions) {
    this.options = options;
  }

  /** Bytes that each folder's file system has free. */
  free(): Promise<{ name: string; folder: string; free: number }[]> {
    const folders = Object.entries(this.options.folders);
    return Promise.all(
      folders.map(async ([name, folder]) => ({ name, folder, free: await freeBytes(folder) })),
    );
  }

  async hasRoom(): Promise<boolean> {
    const { minFreeBytes, logger } = this.options;
    const short = (await this.free()).find(({ free }) => free < minFreeBytes);
    if (short && !this.full) {
      logger.warn('a disk is almost full: no rollout is begun here until there is room', {
        ...{ folder: short.folder, free: short.free, minFreeBytes },
      });
    }
    if (!short && this.full) logger.info('the disks have room again: rollouts are begun');
    this.full = short !== undefined;
    return !this.full;
  }
}

async function freeBytes(folder: string): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch (error) {
    const parent = path.dirname(folder);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || parent === folder) throw error;
    return freeBytes(parent);
  }
}
