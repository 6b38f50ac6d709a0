import type { BoundedText, OutputFileInfo } from '../../../contracts/sandbox.ts';

/** Takes all of an output that is too much to keep. */
export interface Overflow {
  /** False: wait before the next. */
  write(chunk: Buffer): boolean;
  end(): Promise<OutputFileInfo>;
}

/**
 * Collects output in bounded memory: the first half of the bound and the last. What is left out is counted
 * to the byte.
 */
export class BoundedOutput {
  private readonly headSize: number;
  private readonly tailSize: number;
  private readonly head: Buffer[] = [];
  private headBytes = 0;
  private tail: Buffer[] = [];
  private tailBytes = 0;
  private total = 0;
  private readonly beginOverflow: (() => Overflow) | undefined;
  private overflow: Overflow | undefined;

  /** `maxBytes` may be 0: everything is counted and nothing kept. What is more goes, with all before, to `overflow`. */
  constructor(maxBytes: number, overflow?: () => Overflow) {
    this.beginOverflow = overflow;
    this.headSize = Math.ceil(maxBytes / 2);
    this.tailSize = maxBytes - this.headSize;
  }

  get totalBytes(): number {
    return this.total;
  }

  /** False: what takes the overflow has to catch up first. */
  push(chunk: Buffer): boolean {
    this.total += chunk.length;
    const ready = this.toOverflow(chunk);
    this.keep(chunk);
    return ready;
  }

  private toOverflow(chunk: Buffer): boolean {
    if (this.total <= this.headSize + this.tailSize || !this.beginOverflow) return true;
    if (!this.overflow) {
      this.overflow = this.beginOverflow();
      // Until now nothing was left out.
      for (const part of [...this.head, ...this.tail]) this.overflow.write(part);
    }
    return this.overflow.write(chunk);
  }

  private keep(chunk: Buffer): void {
    let rest = chunk;
    if (this.headBytes < this.headSize) {
      const part = rest.subarray(0, this.headSize - this.headBytes);
      this.head.push(part);
      this.headBytes += part.length;
      rest = rest.subarray(part.length);
    }
    if (rest.length === 0 || this.tailSize === 0) return;
    this.tail.push(rest);
    this.tailBytes += rest.length;
    // Compacting at twice the bound makes it a constant cost per byte.
    if (this.tailBytes > 2 * this.tailSize + 65_536) this.compact();
  }

  /** The bytes kept. */
  bytes(): Buffer {
    this.compact();
    return Buffer.concat([...this.head, ...this.tail]);
  }

  /** What was collected as text, and where all of it is. */
  async end(): Promise<BoundedText> {
    const text = this.finish();
    return this.overflow ? { ...text, file: await this.overflow.end() } : text;
  }

  /** What was collected as text. */
  finish(): BoundedText {
    this.compact();
    const kept = this.headBytes + this.tailBytes;
    if (kept === this.total) {
      return {
        text: decode(Buffer.concat([...this.head, ...this.tail])),
        totalBytes: this.total,
        omittedBytes: 0,
      };
    }
    // Characters that the cut went through are left out whole.
    const head = untilLastCharacter(Buffer.concat(this.head));
    const tail = fromFirstCharacter(Buffer.concat(this.tail));
    const omittedBytes = this.total - head.length - tail.length;
    const text = `${decode(head)}\n[... ${omittedBytes} bytes left out ...]\n${decode(tail)}`;
    return { text, totalBytes: this.total, omittedBytes };
  }

  private compact(): void {
    if (this.tailBytes <= this.tailSize) return;
    const all = Buffer.concat(this.tail);
    // A copy, so that the large buffer can go.
    this.tail = [Buffer.from(all.subarray(all.length - this.tailSize))];
    this.tailBytes = this.tailSize;
  }
}

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

function decode(bytes: Buffer): string {
  return decoder.decode(bytes);
}

/** Longest UTF-8 sequence. */
const MAX_SEQUENCE = 4;

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** Bytes that a sequence has by its first byte; 1 for anything that begins none. */
function sequenceLength(first: number): number {
  if (first >= 0xf0 && first < 0xf8) return 4;
  if (first >= 0xe0) return first < 0xf0 ? 3 : 1;
  return first >= 0xc2 ? 2 : 1;
}

/** Without a sequence at the end that is not complete. */
function untilLastCharacter(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(MAX_SEQUENCE - 1, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number;
    if (isContinuation(byte)) continue;
    return sequenceLength(byte) > back ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}

/** Without the rest of a sequence at the start. */
function fromFirstCharacter(bytes: Buffer): Buffer {
  let start = 0;
  while (start < MAX_SEQUENCE - 1 && isContinuation(bytes[start])) start++;
  return bytes.subarray(start);
}
