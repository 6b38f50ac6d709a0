import { chownSync, closeSync, constants, openSync, readlinkSync, writeSync } from 'node:fs';
import type { Socket } from 'node:net';
import { type IPty, spawn } from 'node-pty';
import type { Entry } from '../backends/backend.ts';

/** Wide enough that no program folds its lines. */
const COLUMNS = 4096;
const ROWS = 50;
/** Milliseconds for reading what is left when its program has ended. */
const LAST_OUTPUT_MS = 3000;

export interface TerminalOptions {
  /** The program that it is for. */
  readonly entry: Entry;
  readonly onData: (bytes: Buffer) => void;
  /** Called once, with the program's status, when the last has been read. */
  readonly onExit: (status: number) => void;
}

/** A pseudo terminal with a program, of which nothing that was printed is lost, not even at its end. */
export class Terminal {
  /** Resolves when the program has ended and the last has been read. */
  readonly gone: Promise<void>;
  private readonly pty: IPty;
  private bytesRead = 0;
  private isReading = true;
  private ended = false;
  /** It is being killed: what is left to read is little, and its end is told only when that is read. */
  private killed = false;
  private complete = false;
  /**
   * The terminal's other end. While the host has it open too, the kernel reports no hang-up, which the event loop
   * takes for the end though there is more to read.
   */
  private heldOpen: number | null;

  /** @throws when there is no terminal to be had */
  constructor({ entry: { file, args, env }, onData, onExit }: TerminalOptions) {
    // cwd: any folder that is always there; the one inside is entered inside.
    this.pty = spawn(file, args, { env, cwd: '/', cols: COLUMNS, rows: ROWS, encoding: null, name: 'dumb' });
    this.pty.onData((chunk) => {
      this.bytesRead += chunk.length;
      onData(chunk as unknown as Buffer);
    });
    const { ptsName } = this.pty as unknown as { readonly ptsName: string };
    this.heldOpen = openSync(ptsName, constants.O_RDWR | constants.O_NOCTTY);
    this.readBeforeClose();
    this.gone = new Promise((resolve) => {
      this.pty.onExit(({ exitCode, signal: number }) => {
        this.ended = true;
        this.letGo();
        onExit(number ? 128 + number : exitCode);
        resolve();
      });
    });
  }

  /** Process id of the program as the host sees it, which leads the terminal's session. */
  get pid(): number {
    return this.pty.pid;
  }

  get reading(): boolean {
    return this.isReading;
  }

  /** While nobody waits for output, reading may stop: what prints on then waits in the kernel, at no cost. */
  setReading(reading: boolean): void {
    if (this.ended || this.killed || reading === this.isReading) return;
    this.isReading = reading;
    if (reading) this.pty.resume();
    else this.pty.pause();
  }

  /** Types, at once: node-pty's own way takes a turn through another thread. */
  type(text: string): void {
    try {
      writeSync((this.pty as unknown as { readonly fd: number }).fd, text);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return; // it has ended: onExit tells
      this.pty.write(text); // what was typed before has not been read yet
    }
  }

  /** Gives it to whom its programs run as, who may then open it by name, as `>/dev/stderr` does. */
  give(ownerUid: number | null): void {
    const terminal = readlinkSync(`/proc/${this.pid}/fd/0`);
    if (ownerUid !== null && /^\/dev\/pts\/[0-9]+$/.test(terminal)) chownSync(terminal, ownerUid, -1);
  }

  /** All that will be printed has been read. */
  endOutput(): void {
    this.complete = true;
    this.letGo();
  }

  /** Its processes are about to be killed. `keepOutput`: takes 200 ms longer and loses nothing printed. */
  beforeKill(keepOutput: boolean): void {
    if (!keepOutput) this.letGo();
    this.setReading(true);
    this.killed = true;
  }

  /** Once no more is to be read. */
  private letGo(): void {
    if (this.heldOpen !== null) closeSync(this.heldOpen);
    this.heldOpen = null;
  }

  /**
   * node-pty drops what it has not read 200 ms after the end of its program, which on a busy machine is too soon.
   * Unless {@link endOutput} has been said, the terminal is read until nothing comes, within bounds: what else holds
   * it may print for ever.
   */
  private readBeforeClose(): void {
    const { _socket: socket } = this.pty as unknown as { readonly _socket: Socket };
    const destroy = socket.destroy.bind(socket);
    let until: number | undefined;
    socket.destroy = (error?: Error) => {
      until ??= performance.now() + LAST_OUTPUT_MS;
      const before = this.bytesRead;
      if (socket.destroyed || error || this.complete || performance.now() > until) return destroy(error);
      // Between this turn and the immediate the loop reads what is there.
      const later = (): unknown =>
        this.isReading && this.bytesRead === before ? destroy() : socket.destroy();
      setImmediate(later);
      return socket;
    };
  }
}
