import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import type { z } from 'zod';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LedgerLine } from '../../contracts/ledger.ts';
import type {
  AbortReason,
  ExecResult,
  SandboxInfo,
  ShellResult,
  WatchEvent,
} from '../../contracts/sandbox.ts';
import type { RestoreWorkspace } from '../../contracts/workspace.ts';
import type { Backend, Handle } from './backends/backend.ts';
import { ENDPOINT_SOCKET, Endpoint } from './endpoint/endpoint.ts';
import type { AttemptId } from './ledger/attempts.ts';
import type { Ledger } from './ledger/ledger.ts';
import { limitOfWords } from './limits/signals.ts';
import { Supervisor, type WhichShells } from './limits/supervisor.ts';
import { fileName } from './paths.ts';
import { execute, type OneOff } from './programs/exec.ts';
import { readFile, writeFile } from './programs/files.ts';
import { removeTree } from './remove-tree.ts';
import { within } from './shells/bash.ts';
import { OutputFolder } from './shells/output-folder.ts';
import { Shell, type ShellCommand } from './shells/shell.ts';
import { type Watcher, Watchers } from './watchers.ts';
import type { SideSandboxes } from './workspace/side-sandbox.ts';
import { Workspace } from './workspace/workspace.ts';

/** Milliseconds by which the news of a sandbox's death may come after its first effects. */
const DEATH_NOTICE_MS = 500;

/** What a {@link Sandbox} is made of. */
export interface SandboxParts {
  readonly rolloutId: string;
  readonly batchId: string | undefined;
  readonly groupId: string | undefined;
  readonly attempt: AttemptId;
  readonly host: string;
  readonly backend: Backend;
  readonly handle: Handle;
  readonly ledger: Ledger;
  readonly side: SideSandboxes;
  /** Host folder of this sandbox alone, removed with it. */
  readonly folder: string;
  readonly workspaceDir: string;
  readonly controlDir: string;
  readonly logger: Logger;
}

/** One live sandbox: who holds it, what runs in it, what it has recorded. */
export class Sandbox {
  readonly rolloutId: string;
  readonly attempt: AttemptId;
  private readonly parts: SandboxParts;
  private readonly watchers = new Watchers();
  private readonly shells = new Map<string, Shell>();
  /** By call id, kept until release: a call asked for again runs once. */
  private readonly calls = new Map<string, Promise<ShellResult>>();
  private readonly supervisor: Supervisor;
  private readonly workspace: Workspace;
  /** Of one-off programs. No shell has a name that begins so. */
  private readonly outputs: OutputFolder;
  private programs = new AbortController();
  /** Once it has been asked for. */
  private endpoint: Promise<Endpoint> | null = null;
  private fence = 0;
  /** The holder's entry into the run stage, and the last one that is to pause. */
  private entry = 0;
  private pausedEntry = 0;
  private heard = performance.now();
  /** What a new watcher is told at once: the sandbox has been aborted or has ended. */
  private final: WatchEvent | null = null;
  private ending: Promise<number> | null = null;
  private death: Promise<number> | null = null;
  private dead = false;
  /** Its shells take the places of others, which are gone. */
  private resumed = false;

  constructor(parts: SandboxParts) {
    this.parts = parts;
    this.rolloutId = parts.rolloutId;
    this.attempt = parts.attempt;
    const shells = (which?: WhichShells) => {
      const spared = [...this.shells.values()].filter((shell) => which !== 'idle' || !shell.busy);
      return new Set(spared.flatMap((shell) => shell.ownProcesses));
    };
    this.supervisor = new Supervisor({ ...parts, shells });
    const { handle, controlDir } = parts;
    const { outputBytes } = handle.spec.limits;
    this.outputs = new OutputFolder(path.join(controlDir, '.exec'), `${handle.control}/.exec`, outputBytes);
    this.workspace = new Workspace(parts.side, parts.workspaceDir, parts.handle);
    parts.handle.ended.then((message) => this.onEnded(message));
  }

  get sandboxId(): string {
    return this.parts.handle.sandboxId;
  }

  get batchId(): string | undefined {
    return this.parts.batchId;
  }

  get groupId(): string | undefined {
    return this.parts.groupId;
  }

  /** Of all tokens recorded; null before the first. */
  get oldestVersion(): number | null {
    return this.parts.ledger.oldestVersion;
  }

  /** Somebody waits to hear what becomes of it. */
  get isHeld(): boolean {
    return this.watchers.size > 0;
  }

  get lastHeard(): number {
    if (this.isHeld) this.heard = performance.now();
    return this.heard;
  }

  /**
   * Hands the sandbox to a new holder; all before are told and refused from then on.
   * @throws RolloutError FenceRefused for an entry into the run stage that has been given up: a later one has
   * begun, and a worker that stood still in between has just woken up. Init is entry 0.
   */
  takeOver(fence: number, entry = 0): SandboxInfo {
    this.checkAlive();
    if (entry < this.entry) {
      const late = `entry ${this.entry} into its run stage has begun`;
      throw new RolloutError('FenceRefused', `entry ${entry} takes no sandbox over: ${late}`);
    }
    this.heard = performance.now();
    this.fence = fence;
    this.entry = entry;
    this.watchers.supersede(fence);
    // Who opened it has the error.
    this.endpoint?.then((endpoint) => endpoint.handOver()).catch(() => {});
    const { host, backend, handle } = this.parts;
    return {
      sandboxId: this.sandboxId,
      host,
      backend: backend.name,
      fence,
      workspace: handle.workspace,
    };
  }

  async exec(
    fence: number,
    program: Omit<OneOff, 'signal' | 'cwd'> & { cwd: string | undefined },
    caller: AbortSignal,
  ) {
    this.check(fence);
    const signal = AbortSignal.any([caller, this.programs.signal]);
    const cwd = program.cwd ?? this.parts.handle.workspace;
    const place = { ...this.parts, outputs: this.outputs };
    const { end, limit } = await this.watched(execute(place, { ...program, cwd, signal }));
    const [stdout, stderr] = await Promise.all([end.stdout.end(), end.stderr.end()]);
    const named = end.limit ?? limit ?? limitOfWords(end.exitCode, stderr.text);
    return { ...end, limit: named, stdout, stderr } satisfies ExecResult;
  }

  /** A call id that runs or has run gives its own result, whatever the command. */
  runShell(fence: number, name: string, callId: string, command: ShellCommand): Promise<ShellResult> {
    this.check(fence);
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

  interruptShell(fence: number, name: string): void {
    this.check(fence);
    this.shells.get(name)?.interrupt();
  }

  async closeShell(fence: number, name: string): Promise<void> {
    this.check(fence);
    const shell = this.shells.get(name);
    this.shells.delete(name);
    await shell?.close();
  }

  writeFile(fence: number, file: { path: string; content: Buffer; mode: number }): Promise<void> {
    this.check(fence);
    return this.alive(writeFile(this.parts, file, this.programs.signal));
  }

  readFile(fence: number, file: { path: string; maxBytes: number }) {
    this.check(fence);
    return this.alive(readFile(this.parts, file, this.programs.signal));
  }

  /** Does something with the workspace as a whole. */
  onWorkspace<T>(fence: number, work: (workspace: Workspace, signal: AbortSignal) => Promise<T>): Promise<T> {
    this.check(fence);
    return this.alive(work(this.workspace, this.programs.signal));
  }

  /** Fills the workspace of a sandbox that takes the place of one that is gone, with its shells. */
  async restore(fence: number, { hadShells, ...asked }: Omit<z.output<typeof RestoreWorkspace>, 'fence'>) {
    const restored = await this.onWorkspace(fence, (workspace, signal) => workspace.restore(asked, signal));
    this.resumed = hadShells;
    return restored;
  }

  /** Opens the endpoint, unless it is open; where its socket is, as seen inside. @throws RolloutError SandboxFailed */
  async openEndpoint(fence: number, model: string): Promise<string> {
    this.check(fence);
    const { controlDir, handle } = this.parts;
    this.endpoint ??= Endpoint.open(controlDir, model).catch((error: unknown) => {
      this.endpoint = null;
      throw new RolloutError('SandboxFailed', `no endpoint: ${messageOf(error)}`, { cause: error });
    });
    await this.endpoint;
    return `${handle.control}/${ENDPOINT_SOCKET}`;
  }

  /** The open endpoint, for its holder. @throws RolloutError InvalidRequest if it is not open */
  async endpointFor(fence: number): Promise<Endpoint> {
    this.check(fence);
    if (!this.endpoint) throw new RolloutError('InvalidRequest', 'the endpoint has not been opened');
    const endpoint = await this.endpoint;
    this.check(fence);
    return endpoint;
  }

  appendLedger(fence: number, seq: number, record: unknown): Promise<void> {
    return this.parts.ledger.append(seq, fence, record, () => this.check(fence));
  }

  readLedger(): Promise<LedgerLine[]> {
    return this.parts.ledger.read();
  }

  /**
   * What becomes of the sandbox or of this fence; null when `signal` is aborted first.
   * @throws RolloutError FenceRefused for one that was never issued
   */
  watch(who: Watcher, signal: AbortSignal): Promise<WatchEvent | null> {
    if (this.final) return Promise.resolve(this.final);
    if (who.fence < this.fence) return Promise.resolve({ event: 'superseded' });
    if (who.fence > this.fence) this.check(who.fence);
    if (this.toPause && !who.knowsPause) return Promise.resolve({ event: 'pause' });
    return this.watchers.wait(who, signal).finally(() => {
      this.heard = performance.now();
    });
  }

  /**
   * Stops what runs now and tells the holder; the ledger stays. After a deadline so does the sandbox, whose outcome
   * is still to be taken; of a cancelled one nothing more is wanted, and its processes die at once.
   */
  abort(reason: AbortReason): void {
    this.stop(reason);
    this.tellHolder();
  }

  /** The second half of {@link abort}; where many are aborted, their holders would want the processors for themselves. */
  tellHolder(): void {
    if (this.final) this.watchers.tellAll(this.final);
  }

  /** The first half of {@link abort}. */
  stop(reason: AbortReason): void {
    if (this.ending) return;
    this.final ??= { event: 'abort', reason };
    if (reason === 'runDeadline') {
      this.stopPrograms();
      for (const shell of this.shells.values()) shell.abort();
      return;
    }
    this.die().catch((error: unknown) => {
      this.parts.logger.warn({ sandbox: this.sandboxId, problem: messageOf(error) }, 'not dead yet');
    });
  }

  /** Milliseconds that the death of its processes took. */
  killMs: number | undefined;

  /** No process of it is left. */
  get isDead(): boolean {
    return this.dead;
  }

  /** Kills everything; returns how many processes there were. Asked again, it waits for the same death. */
  private die(): Promise<number> {
    const { backend, handle } = this.parts;
    this.death ??= (async () => {
      const started = performance.now();
      for (const shell of this.shells.values()) shell.retire();
      const count = await backend.destroy(handle);
      this.dead = true;
      this.killMs = performance.now() - started;
      this.stopPrograms();
      return count;
    })().catch((error: unknown) => {
      this.death = null; // tried again by the next who asks
      throw error;
    });
    return this.death;
  }

  /** Tells the holder to give the sandbox back, if its entry is this one or an earlier one. */
  pause(entry: number): void {
    this.pausedEntry = Math.max(this.pausedEntry, entry);
    if (this.toPause) this.watchers.tellPause();
  }

  private get toPause(): boolean {
    return this.entry > 0 && this.entry <= this.pausedEntry;
  }

  /** Every process but the first is dead when this resolves; its shells are closed. */
  async kill(fence: number): Promise<number> {
    this.check(fence);
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

  /**
   * Ends everything, removes the sandbox's folder and closes its ledger; returns how many processes there
   * were. Asked again, it waits for the same end.
   */
  end(event: WatchEvent): Promise<number> {
    // A failure to end is tried again by the next who asks.
    this.ending ??= this.endNow(event).catch((error: unknown) => {
      this.ending = null;
      throw error;
    });
    return this.ending;
  }

  private async endNow(event: WatchEvent): Promise<number> {
    this.supervisor.stop();
    this.final = event;
    this.watchers.tellAll(event);
    const { ledger, folder } = this.parts;
    const count = await this.die();
    await Promise.all([...this.shells.values()].map((shell) => shell.close()));
    this.stopPrograms();
    await (await this.endpoint?.catch(() => null))?.close();
    await Promise.allSettled(this.calls.values()); // their callers have the errors
    await this.workspace.idle();
    // Where nothing ran, nothing hostile lies: no process is needed to remove it.
    await (this.parts.backend.name === 'none' ? rm(folder, { recursive: true }) : removeTree(folder));
    await ledger.close();
    return count;
  }

  private onEnded(message: string): void {
    this.supervisor.stop();
    if (this.final !== null && (this.final.event !== 'abort' || this.death)) return; // as it was told to
    this.final = { event: 'lost', message };
    this.watchers.tellAll(this.final);
    this.stopPrograms();
  }

  private stopPrograms(): void {
    this.programs.abort();
    this.programs = new AbortController();
  }

  private shell(name: string): Shell {
    const open = this.shells.get(name);
    if (open) return open;
    const { backend, handle, controlDir } = this.parts;
    const shell = new Shell(backend, handle, controlDir, fileName(name), this.resumed);
    this.shells.set(name, shell);
    return shell;
  }

  /** @throws RolloutError FenceRefused for any fence but the newest, SandboxLost */
  check(fence: number): void {
    this.checkAlive();
    if (fence === this.fence) {
      this.heard = performance.now();
      return;
    }
    throw new RolloutError('FenceRefused', `fence ${fence} is not the newest of sandbox ${this.sandboxId}`);
  }

  private checkAlive(): void {
    const { final } = this;
    if (final === null || final.event === 'abort') return;
    const how = final.event === 'lost' ? `died: ${final.message}` : `was ${final.event}`;
    throw new RolloutError('SandboxLost', `sandbox ${this.sandboxId} ${how}`);
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
    try {
      const result = await work;
      this.checkAlive();
      return result;
    } catch (error) {
      // Nothing can be started in a sandbox whose first process has just died; word of that is on its way.
      if (error instanceof RolloutError && error.type === 'SandboxFailed') {
        await within(this.parts.handle.ended, DEATH_NOTICE_MS);
      }
      this.checkAlive();
      throw error;
    }
  }
}
