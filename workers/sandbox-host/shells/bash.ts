import { randomBytes } from 'node:crypto';
import { closeSync, ftruncateSync, openSync, writeFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';
import type { Backend, Handle } from '../backends/backend.ts';
import { nowTicks, type ProcessInfo, processInfo, signal, ticks } from '../processes.ts';
import { terminalWaitedFor } from './input.ts';
import { type Marker, MarkerReader } from './markers.ts';
import { rcFile, restoring, typedLine } from './rc.ts';
import { Terminal } from './terminal.ts';

/** What the terminal takes for the end of what is typed (VEOF). */
const END_OF_INPUT = '\x04';
/** Written anew for each command: bash reads it whole before it runs the first line. */
const COMMAND_FILE = 'command';

/** How a command, or the shell with it, ended. */
export interface Completion {
  /** Null when the shell was killed and gave none, or ended before the command began. */
  readonly status: number | null;
  readonly cwd: string;
  /** True when the shell has ended too. */
  readonly shellEnded: boolean;
}

export interface BashOptions {
  readonly backend: Backend;
  readonly handle: Handle;
  /** Host folder shown inside as `handle.control`/<folder>; it exists. */
  readonly controlDir: string;
  readonly folder: string;
  readonly cwd: string;
  /** Everything that appears on the terminal while no command runs or one does. */
  readonly onOutput: (bytes: Buffer) => void;
  /** Called between the last output before a completion and the first after it. */
  readonly onCompletion: () => void;
}

interface Running {
  readonly call: number;
  /** True when bash has read the whole of the typed line: interrupted before, it would lose a part of it. */
  begun: boolean;
  /** True when it is to be interrupted as soon as it has begun. */
  interrupt: boolean;
  readonly resolve: (completion: Completion) => void;
}

/** One bash on a terminal of its own. Runs one command at a time. */
export class Bash {
  private readonly options: BashOptions;
  private readonly terminal: Terminal;
  private readonly reader: MarkerReader;
  private readonly secret = randomBytes(12).toString('hex');
  private readonly own = new Set<number>();
  /** The line typed last, as an echo would show it. */
  typed = '';
  private calls = 0;
  private readonly commandFd: number;
  private commandBytes = 0;
  private startedAt = 0;
  private running: Running | null = null;
  /** What bash said when it was last ready for a command. */
  private ready: Marker | null = null;
  private exitMarker: Marker | null = null;
  private isEnded = false;

  private constructor(options: BashOptions) {
    this.options = options;
    this.reader = new MarkerReader(this.secret, options.onOutput, (marker) => this.onMarker(marker));
    const rc = path.join(options.controlDir, 'rc');
    writeFileSync(rc, rcFile(this.secret, options.cwd, options.handle.workspace));
    const inside = `${options.handle.control}/${options.folder}`;
    const entry = options.backend.enter(options.handle, {
      argv: ['/bin/bash', '--noediting', '--noprofile', '--rcfile', `${inside}/rc`, '-i'],
      cwd: '/',
      environment: { SHELL: '/bin/bash' },
    });
    this.commandFd = openSync(path.join(options.controlDir, COMMAND_FILE), 'w', 0o644);
    try {
      this.terminal = new Terminal({
        entry,
        onData: (bytes) => this.reader.push(bytes),
        onExit: (status) => this.onExit(status),
      });
    } catch (error) {
      closeSync(this.commandFd);
      throw error;
    }
  }

  /** @throws RolloutError SandboxFailed when bash does not come up within `timeoutMs` */
  static async open(options: BashOptions, timeoutMs: number): Promise<Bash> {
    let bash: Bash;
    try {
      bash = new Bash(options);
    } catch (error) {
      if (error instanceof RolloutError) throw error;
      throw new RolloutError('SandboxFailed', `no terminal for a shell: ${messageOf(error)}`, {
        cause: error,
      });
    }
    const ready = new Promise<Completion>((resolve) => {
      bash.running = { call: 0, begun: false, interrupt: false, resolve };
    });
    const completion = await within(ready, timeoutMs);
    if (!completion || completion.shellEnded) {
      await bash.kill();
      throw new RolloutError('SandboxFailed', 'bash did not start in the sandbox');
    }
    // Who counted the machine's processes earlier in this turn of the event loop, for all who ask in it, has not seen bash.
    await nextTurn();
    for (const { pid } of bash.sessionProcesses()) bash.own.add(pid);
    bash.terminal.give(options.handle.ownerUid);
    return bash;
  }

  /** Processes that the shell itself is made of. */
  get ownProcesses(): readonly number[] {
    return [...this.own, this.terminal.pid];
  }

  /** The working directory, when no command ran last. */
  get cwd(): string {
    return (this.exitMarker ?? this.ready)?.cwd ?? this.options.cwd;
  }

  /** True when bash has begun with what was typed last. */
  get begun(): boolean {
    return this.running?.begun ?? true;
  }

  /** True while a command runs. */
  get busy(): boolean {
    return this.running !== null;
  }

  get ended(): boolean {
    return this.isEnded;
  }

  /** Runs a command to its end, which may be the shell's end. */
  run(command: string): Promise<Completion> {
    if (this.running || this.isEnded) throw new RolloutError('Internal', 'this shell is not free');
    const call = ++this.calls;
    // A file holds any command whole; a terminal cuts typed lines at 4,096 bytes and acts on control characters.
    const before = this.ready ? restoring(this.ready) : '';
    this.writeCommand(Buffer.from(`${before}${command}${command.endsWith('\n') ? '' : '\n'}`));
    const completion = new Promise<Completion>((resolve) => {
      this.running = { call, begun: false, interrupt: false, resolve };
    });
    this.startedAt = performance.now();
    const file = `${this.options.handle.control}/${this.options.folder}/${COMMAND_FILE}`;
    this.typed = typedLine(this.secret, call, this.ready, file);
    this.terminal.type(this.typed);
    return completion;
  }

  /** Runs a command of the host's own, of which the next one's `$?` shows nothing. */
  aside(command: string): Promise<Completion> {
    return this.run(`${command}\nbuiltin return ${this.ready?.status ?? 0}`);
  }

  /** True if bash answers within `timeoutMs`; what was typed before is done with then. */
  async answers(timeoutMs: number): Promise<boolean> {
    if (this.running || this.isEnded) return false;
    const completion = await within(this.aside(''), timeoutMs);
    return completion !== undefined && !completion.shellEnded;
  }

  /**
   * What ^C does: SIGINT to the foreground of the terminal. Not typed, which would also throw away output that
   * has not been read yet, and do nothing where a program has set the terminal so.
   */
  interrupt(): void {
    if (!this.running) return;
    if (!this.running.begun) {
      this.running.interrupt = true;
      return;
    }
    const foreground = processInfo(this.terminal.pid)?.foreground ?? -1;
    if (foreground > 0) signal(-foreground, 'SIGINT');
  }

  /** Who waits for something to be typed: bash for the next command, or something that this one runs. */
  waitsForInput(): 'bash' | 'program' | null {
    for (const info of this.options.backend.processes(this.options.handle)) {
      const { pid } = info;
      // Only the foreground is given what is typed: a job in the background that reads is stopped at it.
      const mayRead = info.session === this.terminal.pid && info.group === info.foreground && !info.stopped;
      const terminal = mayRead ? terminalWaitedFor(pid) : null;
      if (terminal === null) continue;
      if (!this.own.has(pid) || terminal === '/dev/tty') return 'program';
      // What it has told may wait to be read.
      return this.terminal.reading ? 'bash' : null;
    }
    return null;
  }

  /** One that has stopped itself, or was stopped, goes on: nobody else would tell it to. */
  resume(): void {
    for (const pid of this.ownProcesses) if (processInfo(pid)?.stopped) signal(pid, 'SIGCONT');
  }

  /** Types the end of input, for a program that waits for some. */
  endInput(): void {
    this.terminal.type(END_OF_INPUT);
  }

  /** Signals all processes that the last command has started. */
  async signalCommand(name: NodeJS.Signals): Promise<void> {
    const since = nowTicks() - ticks(performance.now() - this.startedAt) - 1;
    const signalled = new Set(this.own);
    // Twice, for what was forked while the first list was read; and lists are of one turn of the event loop.
    for (let round = 0; round < 2; round++) {
      await nextTurn();
      for (const { pid, startTicks } of this.sessionProcesses()) {
        if (startTicks < since || signalled.has(pid)) continue;
        signalled.add(pid);
        signal(pid, name);
      }
    }
  }

  /** As of {@link Terminal.setReading}. */
  setReading(reading: boolean): void {
    this.terminal.setReading(reading);
  }

  /** Ends the shell and everything of its session. `keepOutput`: takes 200 ms longer and loses nothing printed. */
  async kill(keepOutput = false): Promise<void> {
    if (this.isEnded) return;
    this.terminal.beforeKill(keepOutput);
    for (const { pid } of this.sessionProcesses()) signal(pid, 'SIGKILL');
    signal(this.terminal.pid, 'SIGKILL');
    await this.terminal.gone;
  }

  /** In place: some file systems write a file that was emptied first to the disk at once. */
  private writeCommand(text: Buffer): void {
    for (let done = 0; done < text.length; ) done += writeSync(this.commandFd, text, done, undefined, done);
    if (text.length < this.commandBytes) ftruncateSync(this.commandFd, text.length);
    this.commandBytes = text.length;
  }

  /** Processes of the terminal's session, and their descendants in sessions of their own. */
  private sessionProcesses(): ProcessInfo[] {
    const all = this.options.backend.processes(this.options.handle);
    const found = new Set(all.filter(({ session }) => session === this.terminal.pid).map(({ pid }) => pid));
    found.add(this.terminal.pid);
    for (let before = 0; before !== found.size; ) {
      before = found.size;
      for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
    }
    return all.filter(({ pid }) => found.has(pid));
  }

  private onMarker(told: Marker): void {
    // Whoever unsets PWD has not gone anywhere.
    const marker = { ...told, cwd: told.cwd || this.cwd };
    if (marker.kind === 'exit') {
      this.exitMarker = marker;
      this.terminal.endOutput();
      return;
    }
    if (marker.call !== this.running?.call) return; // of a command that has been reported already
    if (marker.kind === 'begin') {
      this.running.begun = true;
      if (this.running.interrupt) this.interrupt();
      return;
    }
    this.ready = marker;
    this.finish({ status: marker.status, cwd: marker.cwd, shellEnded: false });
  }

  private onExit(status: number): void {
    this.isEnded = true;
    closeSync(this.commandFd);
    this.reader.flush();
    // What bash ended with is not of a command that it never read.
    this.finish({ status: this.begun ? status : null, cwd: this.cwd, shellEnded: true });
  }

  private finish(completion: Completion): void {
    const running = this.running;
    this.running = null;
    this.options.onCompletion();
    running?.resolve(completion);
  }
}

/** The promise's value, or undefined if it takes longer than `ms`. */
export async function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
