import type { Child } from '../workers/stack/processes.ts';

/** Milliseconds that a process told to stop has for it. */
const STOP_MS = 20_000;
/** Starts that may fail in a row: what a process needs may itself be on its way up. */
const MOST_FAILURES = 10;

/** One process of the cluster: whenever it ends, it is started again at once, until it is stopped for good. */
export class Member {
  readonly name: string;
  private readonly launch: () => Promise<Child>;
  private readonly broken: (news: string) => void;
  private child: Child | undefined;
  /** The start that is under way or was last; never rejects. */
  private up: Promise<void> = Promise.resolve();
  private stopping = false;
  private suspended = new Set<number>();
  private failures = 0;

  /** @param launch resolves when the process is up; `broken` is told when that fails */
  constructor(name: string, launch: () => Promise<Child>, broken: (news: string) => void) {
    this.name = name;
    this.launch = launch;
    this.broken = broken;
    this.begin();
  }

  /** Resolves when the process that is being started is up. */
  get ready(): Promise<void> {
    return this.up;
  }

  /** Stands still. */
  get suspendedNow(): boolean {
    return this.suspended.size > 0;
  }

  get pid(): number | undefined {
    return this.child?.pid;
  }

  /** SIGKILL. @returns the id of the process, undefined if none was up */
  kill(): number | undefined {
    return this.signal('SIGKILL');
  }

  /** Stops the process for a while, as a machine that stands still would. */
  suspend(ms: number): number | undefined {
    const pid = this.signal('SIGSTOP');
    if (pid === undefined) return undefined;
    this.suspended.add(pid);
    setTimeout(() => this.wake(pid), ms);
    return pid;
  }

  /** As a deploy does it: starts a successor, and tells the process to stop when that is up. */
  async replace(): Promise<void> {
    await this.up;
    const { child } = this;
    this.begin();
    await this.up;
    await child?.stop(STOP_MS);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    for (const pid of this.suspended) this.wake(pid);
    await this.up;
    await this.child?.stop(STOP_MS);
  }

  private begin(): void {
    this.up = this.launch().then(
      (child) => {
        this.failures = 0;
        this.adopt(child);
      },
      async (error: unknown) => {
        if (this.stopping) return;
        if (++this.failures > MOST_FAILURES) this.broken(`${this.name} did not start: ${String(error)}`);
        else {
          this.begin();
          await this.up;
        }
      },
    );
  }

  /** Makes a process that is up the member's own; whatever was before it is not started again. */
  private adopt(child: Child): void {
    this.child = child;
    void child.ended.then(() => {
      this.suspended.delete(child.pid);
      if (this.child !== child) return;
      this.child = undefined;
      if (!this.stopping) this.begin();
    });
  }

  private wake(pid: number): void {
    if (this.suspended.delete(pid)) process.kill(pid, 'SIGCONT');
  }

  private signal(name: NodeJS.Signals): number | undefined {
    const { pid } = this;
    if (pid !== undefined) process.kill(pid, name);
    return pid;
  }
}
