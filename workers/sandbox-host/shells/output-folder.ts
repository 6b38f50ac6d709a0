import { createWriteStream, mkdirSync, type WriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { OutputFileInfo } from '../../../contracts/sandbox.ts';

/** Bytes that may wait to be written before the writer is asked to wait. */
const WAITING_BYTES = 1024 ** 2;

interface Entry {
  readonly file: string;
  bytes: number;
}

/**
 * Files with the whole output of what printed more than is shown. The agent can read the folder and not write to it.
 * The newest stay, as many as fit.
 */
export class OutputFolder {
  private readonly folder: string;
  private readonly inside: string;
  private readonly maxBytes: number;
  private readonly entries: Entry[] = [];
  private count = 0;

  /** `folder` on the host is `inside` for the agent; all files together have at most `maxBytes`. */
  constructor(folder: string, inside: string, maxBytes: number) {
    this.folder = folder;
    this.inside = inside;
    this.maxBytes = maxBytes;
    mkdirSync(folder, { recursive: true });
  }

  /** Begins a file. `onDrain`: more may be written after {@link OutputFile.write} said no. */
  begin(onDrain: () => void): OutputFile {
    const name = `${++this.count}.txt`;
    const entry = { file: path.join(this.folder, name), bytes: 0 };
    this.entries.push(entry);
    const stream = createWriteStream(entry.file, { mode: 0o644, highWaterMark: WAITING_BYTES });
    return new OutputFile(stream, `${this.inside}/${name}`, onDrain, (bytes) => this.grow(entry, bytes));
  }

  /** Makes room for more of a file by removing the oldest others; how many of these bytes it may have. */
  private grow(entry: Entry, bytes: number): { allowed: number; removals: Promise<void>[] } {
    const removals: Promise<void>[] = [];
    let others = this.entries.reduce((sum, each) => sum + (each === entry ? 0 : each.bytes), 0);
    for (let oldest = this.entries[0]; oldest && oldest !== entry; oldest = this.entries[0]) {
      if (others + entry.bytes + bytes <= this.maxBytes) break;
      others -= oldest.bytes;
      this.entries.shift();
      removals.push(rm(oldest.file, { force: true }));
    }
    const allowed = Math.max(0, Math.min(bytes, this.maxBytes - others - entry.bytes));
    entry.bytes += allowed;
    return { allowed, removals };
  }
}

/** One of them, while it is written. What cannot be written is left out, and said so. */
export class OutputFile {
  private readonly stream: WriteStream;
  private readonly path: string;
  private readonly grow: (bytes: number) => { allowed: number; removals: Promise<void>[] };
  private readonly removals: Promise<void>[] = [];
  private whole = true;
  private readonly closed: Promise<void>;

  constructor(stream: WriteStream, insidePath: string, onDrain: () => void, grow: OutputFile['grow']) {
    this.stream = stream;
    this.path = insidePath;
    this.grow = grow;
    this.closed = new Promise((resolve) => stream.once('close', resolve));
    stream.on('drain', onDrain);
    // A disk that is full, for one: the command goes on.
    stream.on('error', () => {
      this.whole = false;
      onDrain();
    });
  }

  /** False: wait before the next. */
  write(chunk: Buffer): boolean {
    if (!this.whole) return true;
    const { allowed, removals } = this.grow(chunk.length);
    this.removals.push(...removals);
    this.whole = allowed === chunk.length;
    return this.stream.write(this.whole ? chunk : chunk.subarray(0, allowed));
  }

  /** When it can be read. */
  async end(): Promise<OutputFileInfo> {
    this.stream.end();
    await this.closed;
    await Promise.all(this.removals);
    return { path: this.path, bytes: this.stream.bytesWritten, whole: this.whole };
  }
}
