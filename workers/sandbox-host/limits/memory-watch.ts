import { statSync } from 'node:fs';
import type { Backend, Handle } from '../backends/backend.ts';
import { type ProcessInfo, signal } from '../processes.ts';
import { bytesInFolders, ownBytes, unsharedBytes } from './memory.ts';
import { type MachineMemory, machineMemory, onBeat } from './pulse.ts';
import { Rest, unseen } from './rest.ts';
import { ipcBytes, removeIpc } from './system-v.ts';
import { unlinkedBytes } from './unlinked.ts';

/** A cgroup is full when the kernel could take less than so many bytes back: no program can run in them. */
const LITTLE_BYTES = 1024 ** 2;
/** Milliseconds that a cgroup may be full: more, and nothing in it gets on. */
const FULL_MS = 1000;

export interface MemoryWatchOptions {
  readonly backend: Backend;
  readonly handle: Handle;
  /** The workspace on the host. */
  readonly workspaceDir: string;
  /** Called when the sandbox is found to be over its limit, however short that is. */
  readonly hit: () => void;
  /** Ends the commands that run. */
  readonly killCommands: () => void;
  readonly failed: (error: unknown) => void;
}

/**
 * Keeps the memory of a sandbox within its limit. A cheap sum that counts shared pages often raises a suspicion; an
 * exact one, which takes long, decides what is killed.
 */
export class MemoryWatch {
  private readonly options: MemoryWatchOptions;
  private readonly limit: number;
  private readonly rest = new Rest();
  private seen: Omit<MachineMemory, 'unwritten'> = machineMemory();
  private ipc = 0;
  private full: { readonly since: number; readonly wanted: number } | undefined;
  private stopBeat: (() => void) | undefined;

  constructor(options: MemoryWatchOptions) {
    this.options = options;
    this.limit = options.handle.spec.limits.memoryBytes;
  }

  /** Calls `look` whenever the machine's memory has grown by a part of the limit since the last one. */
  begin(look: () => void): void {
    this.seen = { ...machineMemory(), shared: this.seen.shared };
    this.stopBeat ??= onBeat(({ total, shared }) => {
      if (total - this.seen.total > unseen(this.limit)) look();
      else if (total < this.seen.total) this.seen = { total, shared: Math.min(shared, this.seen.shared) };
    });
  }

  end(): void {
    this.stopBeat?.();
    this.stopBeat = undefined;
  }

  /** `proc`: where the numbers of these processes are those of its `/proc`. */
  look(processes: readonly ProcessInfo[], proc: string): void {
    this.lookAtCgroup();
    const { total, shared } = machineMemory();
    const sharedGrew = shared - this.seen.shared > unseen(this.limit);
    this.seen = { ...this.seen, total };
    const others = bytesInFolders(this.options.handle) + this.ipc;
    const resident = processes.reduce((sum, { residentBytes }) => sum + residentBytes, 0);
    if (resident + others <= this.limit && !sharedGrew) return;
    // What one process has for itself is there once, whoever shares it: a short burst need not be counted exactly.
    const large = processes.filter(({ residentBytes }) => residentBytes + others > this.limit);
    if (large.some(({ pid }) => unsharedBytes(pid, proc) + others > this.limit)) this.options.hit();
    this.rest.run(() => this.check(), this.options.failed);
  }

  /**
   * Where sockets or pipes have taken all the memory, the kernel ends nobody: there are always pages of programs to
   * take back, and to be read again from disk at once. So this ends the commands.
   */
  private lookAtCgroup(): void {
    const { handle, hit, killCommands } = this.options;
    const { cgroup } = handle;
    if (!cgroup?.holds(this.limit - LITTLE_BYTES)) {
      this.full = undefined;
      return;
    }
    const now = performance.now();
    this.full ??= { since: now, wanted: cgroup.wanted() };
    if (now - this.full.since < FULL_MS) return;
    if (cgroup.wanted() > this.full.wanted) {
      hit();
      killCommands();
    }
    this.full = undefined;
  }

  private async check(): Promise<void> {
    const { backend, handle, workspaceDir, hit } = this.options;
    this.seen = machineMemory();
    const processes = backend.processes(handle);
    const memoryDevices = new Set((handle.memoryFolders ?? []).map((folder) => statSync(folder).dev));
    const unlinked = await unlinkedBytes(processes, statSync(workspaceDir).dev, memoryDevices);
    this.ipc = await ipcBytes(backend, handle);
    const sized: { pid: number; bytes: number }[] = [];
    for (const process of processes) {
      const held = unlinked.holders.get(process.pid) ?? 0;
      sized.push({ pid: process.pid, bytes: (await ownBytes(process, unlinked.seen)) + held });
    }
    let total = sized.reduce((sum, { bytes }) => sum + bytes, bytesInFolders(handle) + this.ipc);
    if (total <= this.limit) return;
    hit();
    if (this.ipc > unseen(this.limit)) {
      // Killing does not free them, and who made them may be long gone.
      this.options.killCommands();
      await removeIpc(backend, handle);
      return;
    }
    for (const { pid, bytes } of sized.sort((a, b) => b.bytes - a.bytes)) {
      if (total <= this.limit) break;
      signal(pid, 'SIGKILL');
      total -= bytes;
    }
  }
}
