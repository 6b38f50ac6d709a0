import type { Bash } from './bash.ts';

/** Milliseconds until the first look at a command, which then come ever less often, up to the second. */
const FIRST_MS = 100;
const MOST_MS = 1000;
/** Milliseconds in which a program can go on that has been given the end of its input. */
const AFTER_END_MS = 50;
/** Ends of input that a program is given: some ask again, and to some that key is a key like others. */
const MOST_ENDS = 5;
/** Milliseconds between looks at a bash that seems to be done, and how many show that it is, and does not tell. */
const READY_MS = 100;
const READY_LOOKS = 4;
/** How many show that it has not understood what was typed: on its way to bash that waits for the kernel. */
const UNREAD_LOOKS = 20;

/** Why a command is not waited for any more: what it asks for does not come, or its end has not been told. */
export type InputStop = 'input' | 'untold';

/**
 * Watches a command for programs that read from the terminal, where nobody types: they are given the end of their
 * input, and when that does not help, `stop` is called. So it is when bash waits for the next command, though it
 * has not told that this one is done: what it tells with has been broken, or the terminal that it is typed to on.
 */
export class InputWatch {
  /** True once a program was given an end of input. */
  ended = false;
  private readonly bash: Bash;
  private readonly stop: (why: InputStop) => void;
  private timer: NodeJS.Timeout | undefined;
  private ends = 0;
  private ready = 0;

  constructor(bash: Bash, stop: (why: InputStop) => void) {
    this.bash = bash;
    this.stop = stop;
    this.lookIn(FIRST_MS);
  }

  close(): void {
    clearTimeout(this.timer);
  }

  private lookIn(ms: number): void {
    this.timer = setTimeout(() => {
      const next = this.look();
      if (next !== null) this.lookIn(next ?? Math.min(2 * ms, MOST_MS));
    }, ms);
    this.timer.unref();
  }

  /** Milliseconds until the next look; null: none is needed. */
  private look(): number | null | undefined {
    this.bash.resume();
    const who = this.bash.waitsForInput();
    this.ready = who === 'bash' ? this.ready + 1 : 0;
    if (this.ready === (this.bash.begun ? READY_LOOKS : UNREAD_LOOKS)) {
      this.stop('untold');
      return null;
    }
    if (who === 'bash') return READY_MS;
    if (who === null) return undefined;
    if (this.ends++ === MOST_ENDS) {
      this.stop('input');
      return null;
    }
    this.ended = true;
    this.bash.endInput();
    return AFTER_END_MS;
  }
}
