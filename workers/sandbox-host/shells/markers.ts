/** Traps that would see what the shell's own commands do, and are therefore only set while a command runs. */
const HIDDEN_TRAPS = ['ERR', 'RETURN', 'DEBUG'] as const;
type HiddenTrap = (typeof HIDDEN_TRAPS)[number];

/** What bash reports about itself, between the output of commands. */
export interface Marker {
  /** `begin`: the typed line has been read whole and begins; `done`: it has ended; `exit`: bash ends. */
  readonly kind: 'begin' | 'done' | 'exit';
  /** Number of the command it is about; 0 if bash has lost it. */
  readonly call: number;
  readonly status: number;
  /** Letters of the options that were set, as `$-` has them. */
  readonly options: string;
  /** Aliases were expanded. */
  readonly aliases: boolean;
  readonly cwd: string;
  /** What was to be run on these, as bash quotes it. */
  readonly traps: ReadonlyMap<HiddenTrap, string>;
}

/** Longest marker: a folder may be nested deeper than any path that Linux accepts, and traps may be programs. */
const MAX_MARKER_BYTES = 1024 ** 2;
/** A line of `trap -p`, as a terminal may show it; in POSIX mode there is one for each that is not set, too. */
const TRAP = new RegExp(`trap -- (?:'((?:[^']|'\\\\'')*)'|-) (${HIDDEN_TRAPS.join('|')})\\r?\\n`, 'g');

/** How a marker begins, how the first part of it ends, and how it ends. */
export function delimiters(secret: string) {
  return { begin: `\x01${secret}:`, middle: `\x01${secret}\x01`, end: `\x01${secret}\x02` };
}

/**
 * Takes the markers out of a shell's output. They are written to the terminal itself, so that they come
 * after all that was written before, and begin with a byte that no trace of bash prints and a secret of this
 * shell. Traps come apart from the rest, so that something else may have been printed between.
 */
export class MarkerReader {
  private readonly begin: Buffer;
  private readonly end: Buffer;
  private readonly middle: string;
  private readonly onOutput: (bytes: Buffer) => void;
  private readonly onMarker: (marker: Marker) => void;
  private pending: Buffer = Buffer.alloc(0);

  constructor(secret: string, onOutput: (bytes: Buffer) => void, onMarker: (marker: Marker) => void) {
    const { begin, middle, end } = delimiters(secret);
    this.begin = Buffer.from(begin);
    this.end = Buffer.from(end);
    this.middle = middle;
    this.onOutput = onOutput;
    this.onMarker = onMarker;
  }

  push(chunk: Buffer): void {
    let data = this.pending.length > 0 ? Buffer.concat([this.pending, chunk]) : chunk;
    for (;;) {
      const start = data.indexOf(this.begin);
      if (start < 0) {
        const held = this.beginningAtEnd(data);
        this.emit(data.subarray(0, data.length - held));
        this.pending = data.subarray(data.length - held);
        return;
      }
      this.emit(data.subarray(0, start));
      data = data.subarray(start);
      const end = data.indexOf(this.end);
      if (end < 0 && data.length < MAX_MARKER_BYTES) {
        this.pending = data;
        return;
      }
      const ok = end >= 0 && this.take(data.subarray(this.begin.length, end));
      if (!ok) this.emit(data.subarray(0, this.begin.length)); // someone who knows the secret imitates us
      data = data.subarray(ok ? end + this.end.length : this.begin.length);
    }
  }

  /** The shell has ended: what was held back is output, but for what a marker without an end tells. */
  flush(): void {
    const told = this.pending.indexOf(this.begin) === 0 ? this.pending.indexOf(this.middle) : -1;
    this.emit(told < 0 ? this.pending : this.pending.subarray(told + this.middle.length));
    this.pending = Buffer.alloc(0);
  }

  private take(body: Buffer): boolean {
    // One that was interrupted is followed by another.
    const again = body.lastIndexOf(this.begin);
    const text = body.toString('utf8', again < 0 ? 0 : again + this.begin.length);
    const [fields = '', rest = ''] = text.split(this.middle);
    const match = /^(begin|done|exit):([0-9]*):([0-9]*):([a-zA-Z]*):([a-z0-9_:]*);(.*)$/s.exec(fields);
    if (!match) return false;
    const [, kind, call, status, options, shopts, cwd] = match as unknown as [
      string,
      Marker['kind'],
      ...[string, string, string, string, string],
    ];
    const aliases = shopts.split(':').includes('expand_aliases');
    const traps = new Map<HiddenTrap, string>();
    const printed = rest.replace(TRAP, (_, action: string | undefined, name: HiddenTrap) => {
      if (action !== undefined) traps.set(name, action);
      return '';
    });
    this.emit(Buffer.from(printed));
    this.onMarker({ kind, call: Number(call), status: Number(status), options, aliases, cwd, traps });
    return true;
  }

  private emit(bytes: Buffer): void {
    if (bytes.length > 0) this.onOutput(bytes);
  }

  /** Length of the longest end of `data` with which a marker may begin. */
  private beginningAtEnd(data: Buffer): number {
    const first = this.begin[0] as number;
    let at = data.indexOf(first, Math.max(0, data.length - this.begin.length + 1));
    for (; at >= 0; at = data.indexOf(first, at + 1)) {
      const length = data.length - at;
      if (data.subarray(at).equals(this.begin.subarray(0, length))) return length;
    }
    return 0;
  }
}
