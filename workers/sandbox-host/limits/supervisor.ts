import type { Logger } from 'pino';
import { messageOf } from '../../../contracts/failures.ts';
import type { LimitHit } from '../../../contracts/sandbox.ts';
import type { Backend, Handle } from '../backends/backend.ts';
import { type ProcessInfo, processIds, processInfo, signal } from '../processes.ts';
import { DiskWatch } from './disk-watch.ts';
import { Hits } from './hits.ts';
import { IdleWatch } from './idle-watch.ts';
import { folderIsFull } from './memory.ts';
import { MemoryWatch } from './memory-watch.ts';

/** Milliseconds between looks while a command runs, and while none does. */
const BUSY_MS = 100;
const IDLE_MS = 500;
/** Milliseconds in which no command can have filled a file system. */
const SHORT_MS = 10;
/** Milliseconds that a sandbox may stay at its limit of processes: longer, and it is a fork bomb. */
const FORK_BOMB_MS = 1500;
/** Rounds of stopping processes until none is new. */
const STOP_ROUNDS = 20;
/** Milliseconds after a kill at which what may have stopped with the killed is told to go on. */
const CONTINUE_MS = [0, 50, 250, 1000, 5000];

/** Of the shells: also those that run a command, or only those that run none. */
export type WhichShells = 'all' | 'idle';

export interface SupervisorOptions {
  readonly backend: Backend;
  readonly handle: Handle;
  /** The workspace on the host. */
  readonly workspaceDir: string;
  /** Processes that hold the shells: they go last. */
  readonly shells: (which?: WhichShells) => ReadonlySet<number>;
  readonly logger: Pick<Logger, 'warn'>;
}

/**
 * Keeps one sandbox within its limits by looking: works without any privilege. Looks are cheap; where they
 * raise a suspicion, a closer one follows, which takes at most a fifth of the time however hostile the
 * sandbox is. What is over a limit is killed, the largest first.
 */
export class Supervisor {
  readonly hits = new Hits();
  private readonly options: SupervisorOptions;
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;
  private commands = 0;
  private atProcessLimitSince: number | null = null;
  private readonly memory: MemoryWatch;
  private readonly disk: DiskWatch;
  private readonly idle = new IdleWatch();

  constructor(options: SupervisorOptions) {
    this.options = options;
    this.memory = new MemoryWatch({
      ...options,
      hit: () => this.hit('memory'),
      killCommands: () => this.killCommands(),
      failed: this.failed,
    });
    this.disk = new DiskWatch({
      ...options,
      over: (again) => {
        this.hit('disk');
        // What no program writes, a shell does.
        if (this.killCommands() === 0 || again) this.killCommands('idle');
      },
      failed: this.failed,
    });
    this.schedule();
  }

  /** A command has begun; call the result when it has ended: what was hit. */
  begin(): () => LimitHit | null {
    const started = performance.now();
    if (this.commands++ === 0) {
      this.idle.begin();
      this.memory.begin(() => this.guarded(() => this.lookAtMemory()));
      this.schedule();
    }
    this.disk.begin(() => this.guarded(() => this.disk.look(true)));
    const before = this.refusals();
    const wasFull = folderIsFull(this.options.handle);
    return () => {
      for (const [limit, count] of Object.entries(this.refusals()) as [LimitHit, number][]) {
        if (count > (before[limit] ?? 0)) this.hits.record(limit);
      }
      if (--this.commands === 0) {
        this.memory.end();
        this.disk.end();
      }
      // One that was full before tells nothing of this command; what the program says may.
      if (!wasFull && performance.now() - started > SHORT_MS && folderIsFull(this.options.handle)) {
        this.hits.record('disk');
      }
      return this.hits.since(started);
    };
  }

  /** What the kernel has refused, where cgroups count it. */
  private refusals(): Partial<Record<LimitHit, number>> {
    try {
      return this.options.handle.cgroup?.refusals() ?? {};
    } catch {
      return {}; // the sandbox has just ended
    }
  }

  stop(): void {
    this.stopped = true;
    this.memory.end();
    this.disk.stop();
    clearTimeout(this.timer);
  }

  private schedule(): void {
    clearTimeout(this.timer);
    // Where nothing can run there is nothing to see, and a host may have thousands of those.
    if (this.stopped || this.options.backend.name === 'none') return;
    this.timer = setTimeout(
      () => {
        this.guarded(() => this.look());
        this.schedule();
      },
      this.commands > 0 ? BUSY_MS : IDLE_MS,
    );
    this.timer.unref();
  }

  private look(): void {
    const processes = this.lookAtMemory();
    this.checkProcesses(processes.reduce((sum, { threads }) => sum + threads, 0));
    this.checkIdle(processes);
    this.disk.look(this.commands > 0);
  }

  /** Process ids are the sandbox's own where its own list can be read. */
  private lookAtMemory(): ProcessInfo[] {
    const { proc = '/proc' } = this.options.handle;
    const processes = this.cheapList(proc);
    this.memory.look(processes, proc);
    return processes;
  }

  private cheapList(proc: string): ProcessInfo[] {
    const { backend, handle } = this.options;
    if (handle.proc === undefined) return backend.processes(handle);
    try {
      return processIds(proc).flatMap((pid) => processInfo(pid, proc) ?? []);
    } catch {
      return []; // the sandbox has just ended
    }
  }

  private guarded(look: () => void): void {
    try {
      look();
    } catch (error) {
      this.failed(error);
    }
  }

  private checkProcesses(count: number): void {
    const { processes } = this.options.handle.spec.limits;
    // The kernel also counts those of ours that stand outside, waiting for programs inside.
    if (count < processes - 2 - this.commands - this.options.shells().size) {
      this.atProcessLimitSince = null;
      return;
    }
    this.hits.record('processes');
    this.atProcessLimitSince ??= performance.now();
    const isBomb = performance.now() - this.atProcessLimitSince > FORK_BOMB_MS;
    if (count <= processes * 1.1 && !isBomb) return;
    this.hit('processes');
    this.killCommands();
    this.atProcessLimitSince = null;
  }

  private checkIdle(processes: readonly ProcessInfo[]): void {
    const { proc, spec } = this.options.handle;
    const { idleSeconds } = spec.limits;
    if (idleSeconds === undefined || this.commands === 0) return;
    // The first process, which only waits, is in the sandbox's own list.
    const others = proc === undefined ? processes : processes.filter(({ pid }) => pid !== 1);
    if (this.idle.look(others, proc ?? '/proc') < idleSeconds * 1000) return;
    this.idle.begin();
    this.hits.record('idle'); // its result says so; no danger to the host that a log should tell of
    this.killCommands();
  }

  /** Kills all but some shells: first stopped, so that none forks away. How many there were. */
  private killCommands(spare: WhichShells = 'all'): number {
    const { backend, handle, shells } = this.options;
    const stopped = new Map<number, ProcessInfo>();
    for (let round = 0; round < STOP_ROUNDS; round++) {
      const spared = shells(spare);
      const fresh = backend.processes(handle).filter(({ pid }) => !spared.has(pid) && !stopped.has(pid));
      if (fresh.length === 0) break;
      for (const info of fresh) {
        signal(info.pid, 'SIGSTOP');
        stopped.set(info.pid, info);
      }
    }
    for (const pid of stopped.keys()) signal(pid, 'SIGKILL');
    // What waits outside for a program inside (nsenter) stops itself when that stops, at its own time.
    const waiting = [...new Set([...stopped.values()].map(({ parent }) => parent))]
      .filter((pid) => !stopped.has(pid))
      .flatMap((pid) => processInfo(pid) ?? []);
    for (const delay of CONTINUE_MS) setTimeout(() => waiting.forEach(resume), delay).unref();
    return stopped.size;
  }

  private readonly failed = (error: unknown): void => {
    if (this.stopped) return; // the sandbox ended under the look
    const { handle, logger } = this.options;
    logger.warn({ sandbox: handle.sandboxId, problem: messageOf(error) }, 'limits could not be checked');
  };

  private hit(limit: LimitHit): void {
    this.hits.record(limit);
    this.options.logger.warn({ sandbox: this.options.handle.sandboxId, limit }, 'a sandbox is over a limit');
  }
}

function resume({ pid, startTicks }: ProcessInfo): void {
  if (processInfo(pid)?.startTicks === startTicks) signal(pid, 'SIGCONT');
}
