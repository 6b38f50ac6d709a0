import path from 'node:path';
import type { Logger } from 'pino';
import type { z } from 'zod';
import { RolloutError } from '../../contracts/failures.ts';
import type { ExecResult, ShellResult } from '../../contracts/sandbox.ts';
import type { RestoredWorkspace, RestoreWorkspace } from '../../contracts/workspace.ts';
import type { Backend, Handle } from './backends/backend.ts';
import { limitOfWords } from './limits/signals.ts';
import { Supervisor, type WhichShells } from './limits/supervisor.ts';
import { fileName } from './paths.ts';
import { execute, type OneOff } from './programs/exec.ts';
import { readFile, writeFile } from './programs/files.ts';
import { within } from './shells/bash.ts';
import { OutputFolder } from './shells/output-folder.ts';
import { Shell, type ShellCommand } from './shells/shell.ts';
import type { SideSandboxes } from './workspace/side-sandbox.ts';
import { Workspace } from './workspace/workspace.ts';

/** Milliseconds by which the news of a sandbox's death may come after its first effects. */
const DEATH_NOTICE_MS = 500;

export interface CommandsParts {
  readonly backend: Backend;
  readonly handle: Handle;
  readonly side: SideSandboxes;
  /** Host folder of the sandbox alone. */
  readonly folder: string;
  readonly workspaceDir: string;
  readonly controlDir: string;
  readonly logger: Logger;
  /** @throws RolloutError SandboxLost when the sandbox has ended */
  readonly checkAlive: () => void;
}

/** What runs in one sandbox: its shells, programs, and work on its files; all within its limits. */
export class Commands {
  private readonly parts: CommandsParts;
  private readonly shells = new Map<string, Shell>();
  /** By call id, kept until release: a call asked for again runs once. */
  private readonly calls = new Map<string, Promise<ShellResult>>();
  private readonly supervisor: Supervisor;
  private readonly workspace: Workspace;
  /** Of one-off programs. No shell has a name that begins so. */
  private readonly outputs: OutputFolder;
  private programs = new AbortController();
  /** Its shells take the places of others, which are gone. */
  private resumed = false;

  constructor(parts: CommandsParts) {
    this.parts = parts;
    const shells = (which?: WhichShells) => {
      const spared = [...this.shells.values()].filter((shell) => which !== 'idle' || !shell.busy);
      return new Set(spared.flatMap((shell) => shell.ownProcesses));
    };
    this.supervisor = new Supervisor({ ...parts, shells });
    const { handle, controlDir } = parts;
    const { outputBytes } = handle.spec.limits;
    this.outputs = new OutputFolder(path.join(controlDir, '.exec'), `${handle.control}/.exec`, outputBytes);
    this.workspace = new Workspace(parts.side, parts.workspaceDir, handle);
  }

  async exec(
    program: Omit<OneOff, 'signal' | 'cwd'> & { cwd: string | undefined },
    caller: AbortSignal,
  ): Promise<ExecResult> {
    const signal = AbortSignal.any([caller, this.programs.signal]);
    const cwd = program.cwd ?? this.parts.handle.workspace;
    const place = { ...this.parts, outputs: this.outputs };
    const { end, limit } = await this.watched(execute(place, { ...program, cwd, signal }));
    const [stdout, stderr] = await Promise.all([end.stdout.end(), end.stderr.end()]);
    const named = end.limit ?? limit ?? limitOfWords(end.exitCode, stderr.text);
    return { ...end, limit: named, stdout, stderr };
  }

  /** A call id that runs or has run gives its own result, whatever the command. */
  runShell(name: string, callId: string, command: ShellCommand): Promise<ShellResult> {
    const known = this.calls.get(callId);
    if (known) return known;
    const result = this.watched(this.shell(name).run(command)).then(({ end, limit }) => ({
      ...end,
      limit: end.limit ?? limit ?? limitOfWords(end.exitCode, end.output.text),
    }));
    this.calls.set(callId, result);
    // A call that could not be run may be asked for again.
    result.catch(() => this.calls.delete(callId));
    return result;
  }

  interruptShell(name: string): void {
    this.shells.get(name)?.interrupt();
  }

  async closeShell(name: string): Promise<void> {
    const shell = this.shells.get(name);
    this.shells.delete(name);
    await shell?.close();
  }

  writeFile(file: { path: string; content: Buffer; mode: number }): Promise<void> {
    return this.alive(writeFile(this.parts, file, this.programs.signal));
  }

  readFile(file: { path: string; maxBytes: number }) {
    return this.alive(readFile(this.parts, file, this.programs.signal));
  }

  /** Does something with the workspace as a whole. */
  onWorkspace<T>(work: (workspace: Workspace, signal: AbortSignal) => Promise<T>): Promise<T> {
    return this.alive(work(this.workspace, this.programs.signal));
  }

  /** Fills the workspace of a sandbox that takes the place of one that is gone, with its shells. */
  async restore({
    hadShells,
    ...asked
  }: Omit<z.output<typeof RestoreWorkspace>, 'fence'>): Promise<RestoredWorkspace> {
    const restored = await this.onWorkspace((workspace, signal) => workspace.restore(asked, signal));
    this.resumed = hadShells;
    return restored;
  }

  /** Every process but the first is dead when this resolves; its shells are closed. How many there were. */
  async kill(): Promise<number> {
    this.stopPrograms();
    const closed = [...this.shells.values()];
    this.shells.clear();
    // Where its holder goes on all the same, because a workspace could not be kept, shells say what they lost.
    this.resumed ||= closed.length > 0;
    const { backend, handle } = this.parts;
    const count = backend.processes(handle).length;
    await Promise.all(closed.map((shell) => shell.close()));
    await this.alive(backend.killAll(handle));
    return count;
  }

  /** Ends what runs now as a timeout would. */
  abort(): void {
    this.stopPrograms();
    for (const shell of this.shells.values()) shell.abort();
  }

  /** Of one-off programs and files: ends what runs now. */
  stopPrograms(): void {
    this.programs.abort();
    this.programs = new AbortController();
  }

  /** The sandbox is about to be killed: no shell is replaced any more. */
  retire(): void {
    for (const shell of this.shells.values()) shell.retire();
  }

  /** There is nothing to be watched any more. */
  unwatch(): void {
    this.supervisor.stop();
  }

  /** The sandbox is dead: resolves when nobody waits for anything of it. */
  async close(): Promise<void> {
    await Promise.all([...this.shells.values()].map((shell) => shell.close()));
    this.stopPrograms();
    await Promise.allSettled(this.calls.values()); // their callers have the errors
    await this.workspace.idle();
  }

  private shell(name: string): Shell {
    const open = this.shells.get(name);
    if (open) return open;
    const { backend, handle, controlDir } = this.parts;
    const shell = new Shell(backend, handle, controlDir, fileName(name), this.resumed);
    this.shells.set(name, shell);
    return shell;
  }

  /** A command's end, and the limit that was hit in its time. */
  private async watched<T>(command: Promise<T>) {
    // It is on its way before the first look at the machine, which takes as long as a short command.
    const begun = new Promise<ReturnType<Supervisor['begin']>>((resolve) => {
      setImmediate(() => resolve(this.supervisor.begin()));
    });
    try {
      const end = await this.alive(command);
      return { end, limit: (await begun)() };
    } catch (error) {
      (await begun)();
      throw error;
    }
  }

  /** What runs inside ends with the sandbox: then that, and not the way it ended, is the answer. */
  private async alive<T>(work: Promise<T>): Promise<T> {
    const { handle, checkAlive } = this.parts;
    try {
      const result = await work;
      checkAlive();
      return result;
    } catch (error) {
      // Nothing can be started in a sandbox whose first process has just died; word of that is on its way.
      if (error instanceof RolloutError && error.type === 'SandboxFailed') {
        await within(handle.ended, DEATH_NOTICE_MS);
      }
      checkAlive();
      throw error;
    }
  }
}
