import { writeSync } from 'node:fs';
import { type FileHandle, open, readFile } from 'node:fs/promises';
import path from 'node:path';
import { NO_HASH, parseLedger, sealLine } from '../../../activities/trajectory/ledger-file.ts';
import { syncFolder } from '../../../activities/trajectory/sync-folder.ts';
import { versionRange } from '../../../activities/trajectory/versions.ts';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import { type LedgerLine, LedgerRecord } from '../../../contracts/ledger.ts';

/**
 * The ledger of one attempt: an append-only file, this object its only writer. What was answered survives a
 * crash of the machine.
 */
export class Ledger {
  private readonly file: string;
  private readonly handle: FileHandle;
  private readonly lines: LedgerLine[];
  private bytes: number;
  private queue: Promise<unknown> = Promise.resolve();
  /** Set when a failed append left bytes in the file that could not be cut off. */
  private torn = false;

  private constructor(file: string, handle: FileHandle, lines: LedgerLine[], bytes: number) {
    this.file = file;
    this.handle = handle;
    this.lines = lines;
    this.bytes = bytes;
  }

  /**
   * Opens or makes the file.
   * @throws RolloutError LedgerFailed, or StoreCorrupt when what is there does not match its checksums
   */
  static async open(file: string): Promise<Ledger> {
    return failing(file, async () => {
      const handle = await open(file, 'a+', 0o600);
      try {
        const { lines, validBytes } = parseLedger(await handle.readFile(), file);
        await handle.truncate(validBytes);
        await handle.sync();
        await syncFolder(path.dirname(file));
        return new Ledger(file, handle, lines, validBytes);
      } catch (error) {
        await handle.close();
        throw error;
      }
    });
  }

  /**
   * Appends a record; durable when this resolves. The same record at the same place again changes nothing.
   * `check` runs at the moment of writing, after all appends before.
   * @throws RolloutError InvalidRequest, FenceRefused (another record is there, or one is left out), LedgerFailed
   */
  append(seq: number, fence: number, record: unknown, check: () => void): Promise<void> {
    const parsed = LedgerRecord.safeParse(record);
    if (!parsed.success) {
      throw new RolloutError('InvalidRequest', `not a ledger record: ${parsed.error.message}`);
    }
    return this.inTurn(async () => {
      check();
      const there = this.lines[seq];
      if (there && JSON.stringify(there.record) === JSON.stringify(parsed.data)) return;
      if (seq !== this.lines.length) {
        const next = `the next record of ${path.basename(this.file)} is ${this.lines.length}`;
        throw new RolloutError('FenceRefused', `record ${seq} was refused: ${next}`);
      }
      const fields = { seq, fence, at: new Date().toISOString(), record: parsed.data };
      await this.write(sealLine(this.lines.at(-1)?.hash ?? NO_HASH, fields));
    });
  }

  /** All lines, after the appends that were asked for before. */
  read(): Promise<LedgerLine[]> {
    return this.inTurn(async () => [...this.lines]);
  }

  /** The oldest policy version that tokens were sampled under. */
  get oldestVersion(): number | null {
    return versionRange(this.lines.map(({ record }) => record))?.[0] ?? null;
  }

  close(): Promise<void> {
    return this.inTurn(() => this.handle.close());
  }

  private write({ line, text: written }: { line: LedgerLine; text: string }): Promise<void> {
    return failing(this.file, async () => {
      if (this.torn) await this.cutOff();
      const text = Buffer.from(written);
      this.torn = true;
      try {
        // Into the kernel's memory only, so at once; what takes time is the next line.
        for (let done = 0; done < text.length; ) done += writeSync(this.handle.fd, text, done);
        await this.handle.datasync();
      } catch (error) {
        await this.cutOff().catch(() => {}); // tried again before the next append, which fails if this does
        throw error;
      }
      this.torn = false;
      this.bytes += text.length;
      this.lines.push(line);
    });
  }

  private async cutOff(): Promise<void> {
    await this.handle.truncate(this.bytes);
    await this.handle.datasync();
    this.torn = false;
  }

  private inTurn<T>(task: () => Promise<T>): Promise<T> {
    const result = this.queue.then(task);
    this.queue = result.catch(() => {}); // its caller has the error
    return result;
  }
}

/** The lines of a ledger that nobody writes to; none if there is no file. @throws as {@link Ledger.open} */
export function readLines(file: string): Promise<LedgerLine[]> {
  return failing(file, async () => {
    try {
      return parseLedger(await readFile(file), file).lines;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  });
}

async function failing<T>(file: string, task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    if (error instanceof RolloutError) throw error;
    throw new RolloutError('LedgerFailed', `${file}: ${messageOf(error)}`, { cause: error });
  }
}
