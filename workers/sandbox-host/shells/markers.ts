/** What bash reports about itself, between the output of commands. */
export interface Marker {
  /**
   * `begin`: the typed line has been read whole and begins; `ran`: it came to its end; `prompt`: bash is ready for
   * the next; `exit`: bash ends.
   */
  readonly kind: 'begin' | 'ran' | 'prompt' | 'exit';
  /** Number of the command it is about. */
  readonly call: number;
  readonly status: number;
  readonly cwd: string;
}

/** Longest marker: the longest path that Linux accepts, and the rest. */
const MAX_MARKER_BYTES = 4096 + 256;
const END = 2;

/**
 * Takes the markers out of a shell's output. They are written to the terminal itself, so that they come
 * after all that was written before, and begin with a byte that no trace of bash prints and a secret of this
 * shell.
 */
export class MarkerReader {
  private readonly prefix: Buffer;
  private readonly onOutput: (bytes: Buffer) => void;
  private readonly onMarker: (marker: Marker) => void;
  private pending: Buffer = Buffer.alloc(0);

  constructor(secret: string, onOutput: (bytes: Buffer) => void, onMarker: (marker: Marker) => void) {
    this.prefix = Buffer.from(`\x01${secret}:`);
    this.onOutput = onOutput;
    this.onMarker = onMarker;
  }

  push(chunk: Buffer): void {
    let data = this.pending.length > 0 ? Buffer.concat([this.pending, chunk]) : chunk;
    for (;;) {
      const start = data.indexOf(this.prefix);
      if (start < 0) {
        const held = this.beginningAtEnd(data);
        this.emit(data.subarray(0, data.length - held));
        this.pending = data.subarray(data.length - held);
        return;
      }
      this.emit(data.subarray(0, start));
      data = data.subarray(start);
      const end = data.indexOf(END);
      const marker = end < 0 ? null : parse(data.toString('utf8', this.prefix.length, end));
      if (end < 0 && data.length < MAX_MARKER_BYTES) {
        this.pending = data;
        return;
      }
      if (marker) this.onMarker(marker);
      else this.emit(data.subarray(0, this.prefix.length)); // someone who knows the secret imitates us
      data = data.subarray(marker ? end + 1 : this.prefix.length);
    }
  }

  /** The shell has ended: what was held back is output. */
  flush(): void {
    this.emit(this.pending);
    this.pending = Buffer.alloc(0);
  }

  private emit(bytes: Buffer): void {
    if (bytes.length > 0) this.onOutput(bytes);
  }

  /** Length of the longest end of `data` with which a marker may begin. */
  private beginningAtEnd(data: Buffer): number {
    const first = this.prefix[0] as number;
    let at = data.indexOf(first, Math.max(0, data.length - this.prefix.length + 1));
    for (; at >= 0; at = data.indexOf(first, at + 1)) {
      const length = data.length - at;
      if (data.subarray(at).equals(this.prefix.subarray(0, length))) return length;
    }
    return 0;
  }
}

function parse(text: string): Marker | null {
  const match = /^(begin|ran|prompt|exit):([0-9]+):([0-9]+):(.*)$/s.exec(text);
  if (!match) return null;
  const [, kind, call, status, cwd] = match as unknown as [string, Marker['kind'], string, string, string];
  return { kind, call: Number(call), status: Number(status), cwd };
}
