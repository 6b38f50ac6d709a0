import { mkdir, rm } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { RolloutError } from '../../contracts/failures.ts';
import type { LedgerLine } from '../../contracts/ledger.ts';
import type { CancelReason } from '../../contracts/request.ts';
import type {
  AttachResult,
  AttachSandbox,
  CreateSandbox,
  Drained,
  HostStats,
  ReadAttemptLedger,
  ReleaseReceipt,
  SandboxInfo,
  WatchEvent,
} from '../../contracts/sandbox.ts';
import type { AbortedMany, Selection } from '../../contracts/sweep.ts';
import { AUDIT_TIMES, Audit } from './audit.ts';
import type { Backend } from './backends/backend.ts';
import { makeBackend } from './backends/choose.ts';
import { withCgroups } from './backends/in-cgroups.ts';
import { Fences } from './fences.ts';
import { Graders, laneOf } from './graders.ts';
import { type AttemptId, Attempts, refuse } from './ledger/attempts.ts';
import { readLines } from './ledger/ledger.ts';
import { type Cleared, clearLeftOvers, takeOwnership } from './left-overs.ts';
import { SandboxMaker } from './maker.ts';
import type { SandboxHostOptions } from './options.ts';
import { type HostPaths, hostPaths, sandboxPrefix } from './paths.ts';
import { startReaper, stopReaper } from './reaper.ts';
import type { Sandbox } from './sandbox.ts';
import { isSelected } from './selection.ts';

/** Sandboxes that are aborted before the event loop goes on with everything else. */
const ABORTED_IN_ONE_TURN = 10;

/** The sandboxes of one machine. Knows nothing of how it is called. */
export class SandboxHost {
  readonly options: SandboxHostOptions;
  readonly paths: HostPaths;
  private readonly backend: Backend;
  private readonly fences: Fences;
  private readonly maker: SandboxMaker;
  /** Looks for what rollouts left behind, by itself or when asked. */
  readonly audit: Audit;
  /** No new agent is taken. */
  draining = false;
  private readonly sandboxes = new Map<string, Sandbox>();
  /** The newest sandbox of each rollout's agent. */
  private readonly byRollout = new Map<string, Sandbox>();
  private readonly graders: Graders;
  private readonly closing = new AbortController();
  private readonly turns = new Map<string, Promise<unknown>>();
  private beingMade = 0;
  private readonly endReaper: () => void;
  private readonly lost: Cleared['sandboxes'];

  private constructor(
    options: SandboxHostOptions,
    paths: HostPaths,
    backend: Backend,
    /** Sandboxes that ended with an earlier host, and whose they were. */
    lost: Cleared['sandboxes'],
  ) {
    this.lost = lost;
    this.options = options;
    this.paths = paths;
    this.backend = backend;
    this.fences = new Fences(paths.epoch);
    this.graders = new Graders(options.graderCapacity);
    this.maker = new SandboxMaker(options, paths, backend);
    this.audit = new Audit({
      isOpen: options.isOpen ?? (async () => 'unknown'),
      times: { ...AUDIT_TIMES, ...options.audit },
      sandboxes: () => [...this.sandboxes.values()],
      reap: (sandboxId) => this.release(sandboxId),
      ledgersDir: paths.ledgers,
      logger: options.logger,
    });
    this.audit.start();
    this.endReaper = startReaper(sandboxPrefix(paths.root), paths.reaper);
  }

  /**
   * Takes the state folder over, clears what an earlier host left, and tries the backend.
   * @throws RolloutError SandboxUnavailable with what to do about it
   */
  static async start(options: SandboxHostOptions): Promise<SandboxHost> {
    const paths = hostPaths(options.stateDir);
    await mkdir(paths.root, { recursive: true, mode: 0o700 });
    await takeOwnership(paths.root, paths.owner);
    try {
      for (const folder of [paths.sandboxes, paths.ledgers, paths.shared]) {
        await mkdir(folder, { recursive: true, mode: 0o700 });
      }
      stopReaper(paths.reaper);
      const cleared = await clearLeftOvers(paths.sandboxes);
      if (cleared.sandboxes.size > 0) {
        const [rollouts, { processes }] = [[...cleared.sandboxes.values()].filter(Boolean), cleared];
        options.logger.warn(
          { rollouts, processes },
          'these rollouts lost their sandboxes with an earlier host',
        );
      }
      const backend = await withCgroups(
        makeBackend(options, paths),
        sandboxPrefix(paths.root),
        options.logger,
      );
      const probe = await backend.probe();
      if (!probe.works) throw new RolloutError('SandboxUnavailable', probe.why);
      return new SandboxHost(options, paths, backend, cleared.sandboxes);
    } catch (error) {
      await rm(paths.owner, { force: true });
      throw error;
    }
  }

  /**
   * A grader's waits for room, until `caller` is gone.
   * @throws RolloutError FenceRefused, SandboxLost, SandboxFailed (no room, or it cannot be made), LedgerFailed
   */
  create(request: CreateSandbox, caller: AbortSignal): Promise<SandboxInfo> {
    if (request.purpose === 'grader') return this.createForGrader(request, caller);
    return this.inTurn(request.rolloutId, async () => {
      const { rolloutId, workflowRunId, attempt } = request;
      const id = { workflowRunId, attempt };
      const live = this.byRollout.get(rolloutId);
      if (live) {
        const refusal = refuse([live.attempt], id);
        if (refusal) throw refusal;
        if (live.attempt.workflowRunId === workflowRunId && live.attempt.attempt === attempt) {
          return live.takeOver(this.fences.issue());
        }
      }
      const attempts = new Attempts(this.paths.ledgers, rolloutId);
      await attempts.begin(id, request.resumes ?? false);
      if (live) await this.remove(live, { event: 'superseded' });
      const sandbox = await this.makeForAgent(request, id, attempts.ledgerFile(id));
      this.sandboxes.set(sandbox.sandboxId, sandbox);
      this.byRollout.set(rolloutId, sandbox);
      return sandbox.takeOver(this.fences.issue());
    });
  }

  private createForGrader(request: CreateSandbox, caller: AbortSignal): Promise<SandboxInfo> {
    const { workflowRunId, attempt } = request;
    return this.inTurn(laneOf(request), async () => {
      const left = this.graders.leftBy(request);
      await Promise.all(left.map((sandbox) => this.remove(sandbox, { event: 'superseded' })));
      const before = await this.graders.enter(request, AbortSignal.any([caller, this.closing.signal]));
      try {
        if (before) await this.remove(before, { event: 'superseded' });
        const sandbox = await this.maker.make(request, { workflowRunId, attempt });
        this.sandboxes.set(sandbox.sandboxId, sandbox);
        this.graders.add(request, sandbox);
        return sandbox.takeOver(this.fences.issue());
      } catch (error) {
        this.graders.leave();
        throw error;
      }
    });
  }

  /** @throws RolloutError SandboxLost, FenceRefused (not the attempt that this sandbox was made for) */
  async attach(sandboxId: string, { workflowRunId, attempt, entry }: AttachSandbox): Promise<AttachResult> {
    const sandbox = this.get(sandboxId);
    const { attempt: own } = sandbox;
    if (own.workflowRunId !== workflowRunId || own.attempt !== attempt) {
      const whose = `attempt ${own.attempt} of run ${own.workflowRunId}`;
      throw new RolloutError('FenceRefused', `sandbox ${sandboxId} belongs to ${whose}`);
    }
    const info = sandbox.takeOver(this.fences.issue(), entry);
    return { info, ledger: await sandbox.readLedger() };
  }

  /** @throws RolloutError SandboxLost if there is no such sandbox (any more) */
  get(sandboxId: string): Sandbox {
    const sandbox = this.sandboxes.get(sandboxId);
    if (sandbox) return sandbox;
    const why = this.lost.has(sandboxId)
      ? `sandbox ${sandboxId} of ${this.lost.get(sandboxId) ?? 'a rollout'} ended with an earlier sandbox host`
      : `there is no sandbox ${sandboxId} on this host`;
    throw new RolloutError('SandboxLost', why);
  }

  /**
   * Idempotent. With a fence it is for its holder alone.
   * @throws RolloutError SandboxFailed if its processes do not die, FenceRefused
   */
  async release(sandboxId: string, fence?: number): Promise<ReleaseReceipt> {
    const started = performance.now();
    const sandbox = this.sandboxes.get(sandboxId);
    if (fence !== undefined) sandbox?.check(fence);
    const processesKilled = sandbox ? await this.remove(sandbox, { event: 'released' }) : 0;
    const { killMs } = sandbox ?? {};
    const ms = performance.now() - started;
    return { released: true, processesKilled, ...(killMs === undefined ? {} : { killMs }), ms };
  }

  /** What an attempt whose sandbox is gone has recorded here. @throws RolloutError LedgerFailed, StoreCorrupt */
  recorded({ rolloutId, ...id }: ReadAttemptLedger): Promise<LedgerLine[]> {
    return readLines(new Attempts(this.paths.ledgers, rolloutId).ledgerFile(id));
  }

  stats(): HostStats {
    return {
      host: this.options.host,
      backend: this.backend.name,
      sandboxes: this.agents,
      capacity: this.draining ? 0 : this.options.capacity,
      graders: this.graders.taken,
      graderCapacity: this.options.graderCapacity,
      pid: process.pid,
    };
  }

  /** Who is left of agents. */
  drained(): Drained {
    const living = [...this.byRollout.values()].filter(({ isDead }) => !isDead);
    return { ...this.stats(), rolloutIds: living.map(({ rolloutId }) => rolloutId) };
  }

  /** Whose a sandbox is; undefined if there is no such sandbox. */
  ownerOf(sandboxId: string): { readonly rollout: string; readonly attempt: number } | undefined {
    const sandbox = this.sandboxes.get(sandboxId);
    return sandbox && { rollout: sandbox.rolloutId, attempt: sandbox.attempt.attempt };
  }

  /** Sandboxes that ended with an earlier host of this machine, found when this one began. */
  get lostBefore(): number {
    return this.lost.size;
  }

  /** Sandboxes of agents that take up room; one that is dead and waits to be released does not. */
  private get agents(): number {
    return [...this.byRollout.values()].filter(({ isDead }) => !isDead).length + this.beingMade;
  }

  /** Stops all agents that are selected, and says whose they are; their holders, if they have any, do the rest. */
  async abortMany(selection: Selection, reason: CancelReason): Promise<AbortedMany> {
    const chosen = [...this.byRollout.values()].filter((sandbox) => isSelected(selection, sandbox));
    const answer: AbortedMany = { rolloutIds: [], unheld: [] };
    for (const [index, sandbox] of chosen.entries()) {
      // The first are gone while the last are being killed.
      if (index > 0 && index % ABORTED_IN_ONE_TURN === 0) await nextTurn();
      (sandbox.isHeld ? answer.rolloutIds : answer.unheld).push(sandbox.rolloutId);
      sandbox.stop(reason);
    }
    for (const sandbox of chosen) sandbox.tellHolder();
    return answer;
  }

  /** Ends all sandboxes. */
  async close(): Promise<void> {
    this.closing.abort(new RolloutError('SandboxFailed', 'the sandbox host stops'));
    this.audit.stop();
    await Promise.allSettled(this.turns.values()); // those who asked have the errors
    const message = 'the sandbox host stops';
    await Promise.all(
      [...this.sandboxes.values()].map((one) => this.remove(one, { event: 'lost', message })),
    );
    this.endReaper();
    await rm(this.paths.owner, { force: true });
  }

  private async remove(sandbox: Sandbox, event: WatchEvent): Promise<number> {
    const count = await sandbox.end(event);
    this.sandboxes.delete(sandbox.sandboxId);
    if (this.byRollout.get(sandbox.rolloutId) === sandbox) this.byRollout.delete(sandbox.rolloutId);
    this.graders.remove(sandbox);
    return count;
  }

  private async makeForAgent(request: CreateSandbox, attempt: AttemptId, ledgerFile: string) {
    const { capacity, host } = this.options;
    this.closing.signal.throwIfAborted();
    if (this.draining) throw new RolloutError('HostDrained', `host ${host} is being drained`);
    if (this.agents >= capacity) {
      throw new RolloutError('SandboxFailed', `host ${host} is full: it has ${capacity} sandboxes`);
    }
    this.beingMade++;
    try {
      return await this.maker.make(request, attempt, ledgerFile);
    } finally {
      this.beingMade--;
    }
  }

  /** What concerns one rollout happens one after the other. */
  private inTurn<T>(rolloutId: string, task: () => Promise<T>): Promise<T> {
    const result = (this.turns.get(rolloutId) ?? Promise.resolve()).then(task);
    const settled = result
      .catch(() => {}) // its caller has the error
      .then(() => {
        if (this.turns.get(rolloutId) === settled) this.turns.delete(rolloutId);
      });
    this.turns.set(rolloutId, settled);
    return result;
  }
}
