import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { withParentDeath } from '../../temporal-config/dev-server.ts';
import type { Disks } from './disks.ts';

/** Milliseconds that the machine may take to boot, that a command in it may, and until one looks again. */
const BOOT_MS = 600_000;
const COMMAND_MS = 1_800_000;
const LOOK_MS = 100;

/** How a command in the machine ended. */
export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * A machine with systemd and cgroups of version 2: a Linux kernel that runs as a process of this one (user-mode Linux), so
 * that it takes neither a processor's help nor its emulation. It has no network but its own loopback.
 */
export class Machine {
  private readonly disks: Disks;
  /** Shared with the machine: scripts go in, what they print comes out (agent.sh). */
  private readonly shared: string;
  private process: ChildProcess | undefined;
  private ended: Promise<unknown> = Promise.resolve();
  private commands = 0;

  private constructor(disks: Disks) {
    this.disks = disks;
    this.shared = path.join(disks.folder, 'shared');
  }

  /** Boots one from `disks`. */
  static async boot(disks: Disks): Promise<Machine> {
    const machine = new Machine(disks);
    await machine.start();
    return machine;
  }

  /** Runs a script of bash in it, as root; returns what it printed. @throws Error if it fails, with all that it said */
  async run(script: string, timeoutMs = COMMAND_MS): Promise<string> {
    const { code, stdout, stderr } = await this.try(script, timeoutMs);
    if (code !== 0) throw new Error(`in the machine, code ${code} of: ${script}\n${stdout}${stderr}`);
    return stdout;
  }

  /** As {@link run}, whatever its exit code. */
  async try(script: string, timeoutMs = COMMAND_MS): Promise<Ran> {
    const name = `${++this.commands}`;
    const out = (kind: string) => path.join(this.shared, 'out', `${name}.${kind}`);
    await writeFile(path.join(this.shared, name), script);
    await rename(path.join(this.shared, name), path.join(this.shared, 'in', `${name}.sh`));
    const hasEnded = await this.appears(out('code'), timeoutMs);
    const [stdout, stderr] = [await textOf(out('stdout')), await textOf(out('stderr'))];
    if (!hasEnded) throw new Error(`in the machine, this has not ended: ${script}\n${stdout}${stderr}`);
    return { code: Number(await textOf(out('code'))), stdout, stderr };
  }

  /** Takes its power away in the middle of everything, and boots it again from what its disks have. */
  async cutPower(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /** Takes its power away. */
  async stop(): Promise<void> {
    this.process?.kill('SIGKILL');
    // Its output ends when the last of its processes has: none may write to the disks of the next one.
    await this.ended;
  }

  private async start(): Promise<void> {
    const { folder, kernel, registers, system, project } = this.disks;
    await rm(this.shared, { recursive: true, force: true });
    for (const name of ['in', 'out']) await mkdir(path.join(this.shared, name), { recursive: true });
    // A namespace of processes, so that all of its own end with it.
    const [command, args] = withParentDeath('unshare', [
      ...['--fork', '--pid', '--kill-child', kernel, 'mem=4G', 'root=/dev/ubda', 'rw'],
      ...[
        `ubda=${system}`,
        `ubdb=${project}`,
        'con=null',
        'con0=null,fd:1',
        'ssl=null',
        `shared=${this.shared}`,
      ],
    ]);
    const console = path.join(folder, 'console.log');
    const env = { ...process.env, HOME: folder, LD_PRELOAD: registers };
    this.process = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'], env });
    this.process.stdout?.pipe(createWriteStream(console, { flags: 'a' }));
    this.ended = once(this.process, 'close');
    if (!(await this.appears(path.join(this.shared, 'up'), BOOT_MS))) {
      throw new Error(`the machine did not boot:\n${(await textOf(console)).slice(-3000)}`);
    }
    await this.try('systemctl is-system-running --wait');
  }

  /** Whether there is such a file in time, while the machine runs. */
  private async appears(file: string, timeoutMs: number): Promise<boolean> {
    const deadline = Date.now() + timeoutMs;
    const isThere = () =>
      stat(file).then(
        () => true,
        () => false,
      );
    while (!(await isThere())) {
      const isOver = this.process?.exitCode !== null || this.process.signalCode !== null;
      if (isOver || Date.now() > deadline) return isThere();
      await delay(LOOK_MS);
    }
    return true;
  }
}

const textOf = (file: string) => readFile(file, 'utf8').catch(() => '');
