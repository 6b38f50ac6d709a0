import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { startTimeOf } from '../../config/process-identity.ts';

/** A process that this checkout started; pid and start time name it beyond doubt. */
const Recorded = z.object({ name: z.string(), pid: z.int(), startTime: z.string() });
type Recorded = z.infer<typeof Recorded>;

/** How a child is started. */
export interface ChildOptions {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** A Node process of ours: it says over IPC when it is ready, and ends when this process is gone. */
  readonly ipc?: boolean;
}

/** A running child. */
export interface Child {
  readonly name: string;
  readonly pid: number;
  readonly logFile: string;
  /** Resolves with a sentence when the process has ended. */
  readonly ended: Promise<string>;
  /** Resolves when an `ipc` child says that it is up. @throws Error with the end of its log if it ends before. */
  ready(): Promise<void>;
  /** SIGTERM, after `graceMs` SIGKILL; resolves when it has ended. */
  stop(graceMs?: number): Promise<void>;
}

/** The children of one checkout's stack, recorded in a file so that the next stack can end what was left. */
export class Processes {
  private readonly folder: string;
  private readonly children = new Map<number, Recorded>();

  constructor(stateFolder: string) {
    this.folder = stateFolder;
    mkdirSync(path.join(stateFolder, 'logs'), { recursive: true });
  }

  start(options: ChildOptions): Child {
    const logFile = path.join(this.folder, 'logs', `${options.name}.log`);
    const log = openSync(logFile, 'a', 0o600);
    const child = spawn(options.command, [...options.args], {
      env: { ...process.env, ...options.env },
      stdio: ['ignore', log, log, ...(options.ipc ? (['ipc'] as const) : [])],
      detached: true, // Ctrl-C in the terminal is for this process, which stops the others in order
    });
    closeSync(log);
    return this.track(options.name, child, logFile);
  }

  /** Ends what an earlier stack of this checkout left running. @returns the names. */
  endLeftovers(): string[] {
    const ended: string[] = [];
    for (const { name, pid, startTime } of this.readFile()) {
      if (startTimeOf(pid) !== startTime) continue;
      process.kill(pid, 'SIGKILL');
      ended.push(name);
    }
    this.writeFile();
    return ended;
  }

  private track(name: string, child: ChildProcess, logFile: string): Child {
    const ended = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(`${name} could not be started: ${error.message}`));
      child.once('exit', (code, signal) => resolve(`${name} ended with ${signal ?? `status ${code}`}`));
    });
    const pid = child.pid ?? 0;
    if (pid > 0) {
      this.children.set(pid, { name, pid, startTime: startTimeOf(pid) ?? '' });
      this.writeFile();
      void ended.then(() => {
        this.children.delete(pid);
        this.writeFile();
      });
    }
    let said: () => void;
    const ready = new Promise<void>((resolve) => {
      said = resolve;
    });
    child.on('message', (message: { ready?: boolean }) => message.ready && said());
    return {
      name,
      pid,
      logFile,
      ended,
      ready: () =>
        Promise.race([
          ready,
          ended.then((how) => {
            throw new Error(`${how}:\n${tailOf(logFile)}`);
          }),
        ]),
      stop: async (graceMs = 10_000) => {
        if (child.exitCode !== null || child.signalCode !== null || pid === 0) return;
        child.kill('SIGTERM');
        const force = setTimeout(() => child.kill('SIGKILL'), graceMs);
        await ended;
        clearTimeout(force);
      },
    };
  }

  private get file(): string {
    return path.join(this.folder, 'processes.json');
  }

  private readFile(): Recorded[] {
    if (!existsSync(this.file)) return [];
    return z.array(Recorded).parse(JSON.parse(readFileSync(this.file, 'utf8')));
  }

  private writeFile(): void {
    writeFileSync(`${this.file}.new`, JSON.stringify([...this.children.values()], null, 2));
    renameSync(`${this.file}.new`, this.file);
  }
}

/** Last lines of a log, for a message. */
export function tailOf(file: string, lines = 15): string {
  if (!existsSync(file)) return '';
  return readFileSync(file, 'utf8').trimEnd().split('\n').slice(-lines).join('\n');
}
