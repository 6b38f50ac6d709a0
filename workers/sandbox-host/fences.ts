import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import path from 'node:path';
import { messageOf, RolloutError } from '../../contracts/failures.ts';

/** Fences that one start of the host can issue before it takes the next epoch. */
const FENCES_PER_EPOCH = 2 ** 24;

/**
 * Issues fences: numbers that only grow, over restarts of the host too, because each start begins an epoch of
 * its own that is on disk before its first fence is given out.
 */
export class Fences {
  private readonly file: string;
  private next = 0;
  private end = 0;

  /** `file` holds the last epoch. @throws RolloutError LedgerFailed when it cannot be read or written */
  constructor(file: string) {
    this.file = file;
    this.beginEpoch();
  }

  issue(): number {
    if (this.next === this.end) this.beginEpoch();
    return this.next++;
  }

  private beginEpoch(): void {
    try {
      const epoch = this.lastEpoch() + 1;
      const fresh = `${this.file}.new`;
      writeDurably(fresh, `${epoch}\n`);
      renameSync(fresh, this.file);
      syncPath(path.dirname(this.file));
      this.next = epoch * FENCES_PER_EPOCH;
      this.end = this.next + FENCES_PER_EPOCH;
    } catch (error) {
      throw new RolloutError('LedgerFailed', `${this.file}: ${messageOf(error)}`, { cause: error });
    }
  }

  private lastEpoch(): number {
    let text: string;
    try {
      text = readFileSync(this.file, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 0;
      throw error;
    }
    if (!/^[1-9][0-9]{0,7}\n$/.test(text)) {
      throw new Error(`does not hold a number: write one there that is higher than any before`);
    }
    return Number(text);
  }
}

function writeDurably(file: string, text: string): void {
  const fd = openSync(file, 'w', 0o600);
  try {
    writeSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function syncPath(folder: string): void {
  const fd = openSync(folder, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
