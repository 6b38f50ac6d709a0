import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { RolloutError } from '../../../contracts/failures.ts';
import type { BoundedText, ShellResult } from '../../../contracts/sandbox.ts';
import type { Backend, Handle } from '../backends/backend.ts';
import { limitOfStatus } from '../limits/signals.ts';
import { Bash, type Completion, within } from './bash.ts';
import { BoundedOutput } from './bounded-output.ts';
import { type InputStop, InputWatch } from './input-watch.ts';
import { OutputFolder } from './output-folder.ts';

/** Milliseconds for bash to come up. A loaded machine may need seconds. */
const OPEN_MS = 20_000;
/** Milliseconds that a command has to end after each step of the ladder. */
const STEP_MS = 1000;
/**
 * Milliseconds between interrupts. One alone may hit a program of a loop, just as it ends by itself, and the
 * loop goes on.
 */
const INTERRUPT_MS = 200;
/** Bytes kept of what background jobs print while no command runs; it goes to the next command. */
const IDLE_BYTES = 16_384;

/**
 * As bash prints it: the job, how it ended or stopped in 24 columns, the command; and where one is now, if that is
 * elsewhere. Before a stopped one it begins a new line. Commands of several lines are loops and the like, of which bash
 * indents all but some words, and those with a text to read.
 */
const NOTICE = new RegExp(
  [
    /(?:\n(?=.*Stopped ))?^\[[0-9]+\][-+ ] {2}(?=.{24})/,
    /(?:Done|Exit|Stopped|Terminated|Killed|Hangup|Interrupt|Quit|Aborted|Broken pipe|Alarm clock|Segmentation fault)\b/,
    /(?:[^<\n]*<<-?'?(\w+)\b.*\n(?:.*\n){0,50}?\1\n\n?|.*\n)/,
    /(?:(?:(?<=; (?:do|then)\n| in \n)|(?<=[;)]\n)do\n)(?:(?:do|then|else|elif .*| {4}.*)\n)*(?:done|fi|esac)\b.*\n)?/,
    /(?:\(wd now: .*\)\n)?/,
  ]
    .map(({ source }) => source)
    .join(''),
  'gm',
);

/** Characters of an output, above which notices stay in it: made up ones in 4 MiB would take the host seconds. */
const NOTICES_CHARACTERS = 131_072;

/** Why a command is ended before its time. */
type Stop = 'aborted' | 'output' | InputStop;

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
  private readonly outputs: OutputFolder;
  private bash: Bash | null = null;
  /** Output of the command that runs, and of what else prints while none does. */
  private output: BoundedOutput | null = null;
  private idle = new BoundedOutput(IDLE_BYTES);
  private cwd: string;
  private running: Promise<Completion> | null = null;
  private queue: Promise<unknown> = Promise.resolve();
  private stop: ((why: Stop) => void) | null = null;
  private closed = false;
  private replaces: boolean;

  /**
   * `controlDir` is the host's side of `handle.control`; `name` has been made safe for a path. `replaces`: one that
   * is gone, of which the first command is to be told.
   */
  constructor(backend: Backend, handle: Handle, controlDir: string, name: string, replaces: boolean) {
    this.backend = backend;
    this.replaces = replaces;
    this.handle = handle;
    this.folder = name;
    this.controlDir = path.join(controlDir, name);
    mkdirSync(this.controlDir, { recursive: true });
    this.outputs = new OutputFolder(
      path.join(this.controlDir, 'output'),
      `${handle.control}/${name}/output`,
      handle.spec.limits.outputBytes,
    );
    this.cwd = handle.workspace;
  }

  /** Processes that its bash itself is made of. */
  get ownProcesses(): readonly number[] {
    return this.bash && !this.bash.ended ? this.bash.ownProcesses : [];
  }

  /** A command runs. */
  get busy(): boolean {
    return this.running !== null;
  }

  /** Runs a command after those before it. @throws RolloutError SandboxFailed when no bash can be had */
  run(command: ShellCommand): Promise<ShellResult> {
    const result = this.queue.then(() => this.runNow(command));
    this.queue = result.catch(() => {}); // its caller has the error
    return result;
  }

  /** ^C for whatever runs. */
  interrupt(): void {
    const { bash } = this;
    if (bash && this.running) void this.interruptAll(bash, this.running);
  }

  /** Ends what runs as a timeout would, without waiting for the time. */
  abort(): void {
    this.stop?.('aborted');
  }

  /** No bash is started any more. */
  retire(): void {
    this.closed = true;
  }

  /** Ends the shell with all it started; a command that runs ends without a status. */
  async close(): Promise<void> {
    this.retire();
    await this.bash?.kill();
    this.bash = null;
  }

  private async runNow({ command, timeoutMs, maxOutputBytes }: ShellCommand): Promise<ShellResult> {
    const started = performance.now();
    if (this.closed) throw new RolloutError('SandboxLost', `shell ${this.folder} was closed`);
    // A bash that ended between commands is replaced before the next one, which then says so.
    let restarted = this.replaces || this.bash?.ended === true;
    this.replaces = false;
    const bash = this.bash && !this.bash.ended ? this.bash : await this.open();
    const output = new BoundedOutput(maxOutputBytes, () =>
      this.outputs.begin(() => this.bash?.setReading(true)),
    );
    this.moveIdleTo(output);
    this.output = output;
    bash.setReading(true);
    const running = bash.run(command);
    this.running = running;
    const stopped = new Promise<Stop>((resolve) => {
      this.stop = resolve;
    });
    const input = new InputWatch(bash, (why) => this.stop?.(why));
    const first = (await within(Promise.race([running, stopped]), timeoutMs)) ?? 'timeout';
    input.close();
    this.stop = null;
    const completion = typeof first === 'string' ? await this.climbDown(bash, running, first) : first;
    const answers = typeof first !== 'string' || (await bash.answers(STEP_MS));
    this.running = null;
    if (typeof first === 'string') this.moveIdleTo(output); // what was said of what was killed
    const printed = await output.end();
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
      limit: first === 'output' ? 'output' : limitOfStatus(completion.status),
      input: first === 'input' ? 'stopped' : input.ended ? 'ended' : null,
      output: withoutNotices(command, await this.withoutEcho(bash, printed)),
      cwd: this.cwd,
      ms: performance.now() - started,
    };
  }

  /** A command that reset the terminal has turned its echo on: what was typed next shows, once. */
  private async withoutEcho(bash: Bash, output: BoundedText): Promise<BoundedText> {
    const text = output.text.replaceAll('\r\n', '\n');
    const removed = output.omittedBytes === 0 ? output.text.length - text.length : 0;
    const totalBytes = output.totalBytes - removed;
    const line = bash.typed.trimEnd();
    const echo = [`${line}\n`, `${line}^J`].find((each) => text.includes(each)); // ^J: a raw terminal's
    if (echo === undefined) return { ...output, text, totalBytes };
    if (!bash.ended) await within(bash.aside('stty sane -echo -onlcr </dev/tty'), STEP_MS);
    this.idle = new BoundedOutput(IDLE_BYTES);
    return { ...output, text: text.replace(echo, ''), totalBytes: totalBytes - echo.length };
  }

  /** The ladder: interrupt, ask, kill the command, kill the shell. */
  private async climbDown(
    bash: Bash,
    running: Promise<Completion>,
    why: Stop | 'timeout',
  ): Promise<Completion> {
    const steps =
      why === 'untold'
        ? []
        : [
            () => this.interruptAll(bash, running),
            async () => {
              await bash.signalCommand('SIGTERM');
              return within(running, STEP_MS);
            },
            async () => {
              await bash.signalCommand('SIGKILL');
              return this.interruptAll(bash, running); // the rest of a script whose program was killed
            },
          ];
    for (const step of steps) {
      const completion = await step();
      if (!completion) continue;
      // What the command left in the background is part of it and has had its time.
      await bash.signalCommand('SIGKILL');
      return completion;
    }
    await bash.kill(true);
    return { ...(await running), status: null };
  }

  private async interruptAll(bash: Bash, running: Promise<Completion>): Promise<Completion | undefined> {
    let completion: Completion | undefined;
    for (let waited = 0; !completion && waited < STEP_MS; waited += INTERRUPT_MS) {
      bash.interrupt();
      completion = await within(running, INTERRUPT_MS);
    }
    return completion;
  }

  private async open(): Promise<Bash> {
    const bash = await Bash.open(
      {
        backend: this.backend,
        handle: this.handle,
        controlDir: this.controlDir,
        folder: this.folder,
        cwd: this.cwd,
        onOutput: (bytes) => this.onOutput(bytes),
        onCompletion: () => {
          this.output = null;
        },
      },
      OPEN_MS,
    );
    this.bash = bash;
    this.cwd = bash.cwd; // elsewhere, if the folder is gone
    if (this.closed) await bash.kill();
    return bash;
  }
  /** What has been printed while no command ran becomes a part of one's output. */
  private moveIdleTo(output: BoundedOutput): void {
    output.push(Buffer.from(this.idle.finish().text));
    this.idle = new BoundedOutput(IDLE_BYTES);
  }

  private onOutput(bytes: Buffer): void {
    if (this.output) {
      if (!this.output.push(bytes)) this.bash?.setReading(false);
      if (this.output.totalBytes > this.handle.spec.limits.outputBytes) this.stop?.('output');
    } else {
      this.idle.push(bytes);
      if (!this.bash?.busy && this.idle.totalBytes > IDLE_BYTES) this.bash?.setReading(false);
    }
  }
}

/**
 * Without job control's word on background jobs that have ended, which bash puts in where it pleases; unless the
 * command may have asked for it.
 */
function withoutNotices(command: string, output: BoundedText): BoundedText {
  if (/\bjobs\b/.test(command) || output.text.length > NOTICES_CHARACTERS) return output;
  let removed = 0;
  const text = output.text.replace(NOTICE, (line) => {
    removed += Buffer.byteLength(line);
    return '';
  });
  return { ...output, text, totalBytes: output.totalBytes - removed };
}
