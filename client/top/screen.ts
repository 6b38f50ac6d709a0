/** What the screen is written to; a terminal. */
export type Terminal = Pick<NodeJS.WriteStream, 'write' | 'columns' | 'rows'>;

/** Escape sequences of ECMA-48 and xterm. */
const ESC = '\u001b[';
const ENTER = `${ESC}?1049h${ESC}?25l`;
const LEAVE = `${ESC}?25h${ESC}?1049l`;
/** Terminals that know it show a frame only when it is whole. */
const [BEGIN, END] = [`${ESC}?2026h`, `${ESC}?2026l`];

/** A screen beside the one that was there, drawn over line by line, so that nothing flickers. */
export class Screen {
  readonly #terminal: Terminal;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    terminal.write(ENTER);
  }

  /** Lines that do not fit are said to be missing. */
  draw(lines: readonly string[]): void {
    const { rows = 24 } = this.#terminal;
    const fits = lines.length <= rows;
    const shown = fits ? lines : [...lines.slice(0, rows - 1), `… ${lines.length - rows + 1} more lines`];
    const text = shown.map((line) => `${line}${ESC}K`).join('\r\n');
    this.#terminal.write(`${BEGIN}${ESC}H${text}${ESC}J${END}`);
  }

  /** The screen that was there before comes back. */
  close(): void {
    this.#terminal.write(LEAVE);
  }
}
