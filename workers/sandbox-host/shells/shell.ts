import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { RolloutError } from '../../../contracts/failures.ts';
import type { ShellResult } from '../../../contracts/sandbox.ts';
import type { Backend, Handle } from '../backends/backend.ts';
import { limitOfStatus } from '../programs/limit.ts';
import { Bash, type Completion, within } from './bash.ts';
import { BoundedOutput } from './bounded-output.ts';

/** Milliseconds for bash to come up. A loaded machine may need seconds. */
const OPEN_MS = 20_000;
/** Milliseconds that a command has to end after each step of the ladder. */
const STEP_MS = 1000;
/** Bytes kept of what background jobs print while no command runs; it goes to the next command. */
const IDLE_BYTES = 16_384;

/** A command for a shell. */
export interface ShellCommand {
  readonly command: string;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
}

/**
 * A named shell of a sandbox: a bash that is replaced when it ends. Commands run one after the other in the
 * order they were given.
 */
export class Shell {
  private readonly backend: Backend;
  private readonly handle: Handle;
  private readonly controlDir: string;
  private readonly folder: string;
  private bash: Bash | null = null;
  private output = new BoundedOutput(IDLE_BYTES);
  private cwd: string;
  private queue: Promise<unknown> = Promise.resolve();
  private stop: (() => void) | null = null;
  private closed = false;

  /** `controlDir` is the host's side of `handle.control`; `name` has been made safe for a path. */
  constructor(backend: Backend, handle: Handle, controlDir: string, name: string) {
    this.backend = backend;
    this.handle = handle;
    this.folder = name;
    this.controlDir = path.join(controlDir, name);
    mkdirSync(this.controlDir, { recursive: true });
    this.cwd = handle.workspace;
  }

  /** Runs a command after those before it. @throws RolloutError SandboxFailed when no bash can be had */
  run(command: ShellCommand): Promise<ShellResult> {
    const result = this.queue.then(() => this.runNow(command));
    this.queue = result.catch(() => {}); // its caller has the error
    return result;
  }

  /** ^C for whatever runs. */
  interrupt(): void {
    this.bash?.interrupt();
  }

  /** Ends what runs as a timeout would, without waiting for the time. */
  abort(): void {
    this.stop?.();
  }

  /** Ends the shell with all it started; a command that runs ends without a status. */
  async close(): Promise<void> {
    this.closed = true;
    await this.bash?.kill();
    this.bash = null;
  }

  private async runNow({ command, timeoutMs, maxOutputBytes }: ShellCommand): Promise<ShellResult> {
    const started = performance.now();
    if (this.closed) throw new RolloutError('SandboxLost', `shell ${this.folder} was closed`);
    // A bash that ended between commands is replaced before the next one, which then says so.
    let restarted = this.bash?.ended === true;
    const bash = this.bash && !this.bash.ended ? this.bash : await this.open();
    const idle = this.output.finish();
    this.output = new BoundedOutput(maxOutputBytes);
    this.output.push(Buffer.from(idle.text));
    const running = bash.run(command);
    const stopped = new Promise<'stopped'>((resolve) => {
      this.stop = () => resolve('stopped');
    });
    const first = (await within(Promise.race([running, stopped]), timeoutMs)) ?? 'timeout';
    this.stop = null;
    const completion = typeof first === 'string' ? await this.climbDown(bash, running) : first;
    const answers = typeof first !== 'string' || (await bash.answers(STEP_MS));
    const { text, ...sizes } = this.output.finish();
    this.output = new BoundedOutput(IDLE_BYTES);
    this.cwd = completion.cwd;
    if (this.closed) {
      await bash.kill();
    } else if (completion.shellEnded || !answers) {
      await bash.kill();
      await this.open();
      restarted = true;
    }
    return {
      exitCode: completion.status,
      timedOut: first === 'timeout',
      restarted,
      limit: limitOfStatus(completion.status),
      output: { ...sizes, text: await this.withoutEcho(bash, text) },
      cwd: this.cwd,
      ms: performance.now() - started,
    };
  }

  /** A command that reset the terminal has turned its echo on: what was typed next shows, once. */
  private async withoutEcho(bash: Bash, text: string): Promise<string> {
    const lines = text.replaceAll('\r\n', '\n');
    const { typed } = bash;
    if (!lines.includes(typed)) return lines;
    if (!bash.ended) await within(bash.run('stty -echo -onlcr </dev/tty'), STEP_MS);
    this.output = new BoundedOutput(IDLE_BYTES);
    return lines.replace(typed, '');
  }

  /** The ladder: interrupt, ask, kill the command, kill the shell. */
  private async climbDown(bash: Bash, running: Promise<Completion>): Promise<Completion> {
    const steps = [
      () => bash.interrupt(),
      () => bash.signalCommand('SIGTERM'),
      () => {
        bash.signalCommand('SIGKILL');
        bash.interrupt(); // the rest of a script whose program was killed
      },
    ];
    for (const step of steps) {
      step();
      const completion = await within(running, STEP_MS);
      if (!completion) continue;
      // What the command left in the background is part of it and has had its time.
      bash.signalCommand('SIGKILL');
      return completion;
    }
    await bash.kill();
    return { ...(await running), status: null };
  }

  private async open(): Promise<Bash> {
    const bash = await Bash.open(
      {
        backend: this.backend,
        handle: this.handle,
        controlDir: this.controlDir,
        folder: this.folder,
        cwd: this.cwd,
        onOutput: (bytes) => this.output.push(bytes),
      },
      OPEN_MS,
    );
    this.bash = bash;
    if (this.closed) await bash.kill();
    return bash;
  }
}
