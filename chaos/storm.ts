import { setTimeout as delay } from 'node:timers/promises';
import { CANCEL_SIGNAL, PAUSE, RESUME, STAGE_STARTED_SIGNAL } from '../contracts/signals.ts';
import type { Cluster } from './cluster.ts';
import type { Fleet, Flight } from './fleet.ts';
import type { Member } from './member.ts';
import type { FaultKind, PlannedFault } from './plan.ts';
import type { PolicyServer, Refusal } from './policy-server.ts';
import { Random } from './random.ts';

/** A fault as it was done. */
export interface Fault {
  readonly kind: FaultKind;
  /** What was hit: a process, the server, the disk. */
  readonly target: string;
  readonly pid: number | null;
  readonly at: number;
  /** When it was over, where it lasts. */
  endedAt: number;
}

/** How many rollouts one burst of signals, or one pause, is for. */
const SIGNALLED = 3;

/** Payloads that no signal may carry. */
const MALFORMED = [undefined, null, 'x', 7, [], { reason: 'bored' }, { attempt: 0, entry: 1, elapsedMs: 1 }];

/** Can be made to stand still. */
const isUp = (member: Member) => member.pid !== undefined && !member.suspendedNow;

/** Carries a plan out, against everything that runs. */
export class Storm {
  readonly faults: Fault[] = [];
  /** Faults that could not be made here, with the reason. */
  readonly skipped: Partial<Record<FaultKind, string>> = {};
  private readonly cluster: Cluster;
  private readonly policy: PolicyServer;
  private readonly fleet: Fleet;
  private readonly deployed: readonly string[];
  private readonly say: (line: string) => void;

  constructor(
    cluster: Cluster,
    policy: PolicyServer,
    fleet: Fleet,
    deployed: readonly string[],
    say: (line: string) => void,
  ) {
    this.deployed = deployed;
    this.cluster = cluster;
    this.policy = policy;
    this.fleet = fleet;
    this.say = say;
  }

  /** Resolves when all faults of the plan are over. */
  async blow(plan: readonly PlannedFault[]): Promise<void> {
    const began = Date.now();
    await Promise.all(
      plan.map(async (fault) => {
        await delay(began + fault.at - Date.now());
        await this.make(fault);
      }),
    );
  }

  private make({ kind, lasts, whom }: PlannedFault): Promise<void> {
    const random = new Random(Math.floor(whom * 2 ** 32));
    const one = (prefix: string) => random.pick(this.cluster.named(prefix));
    switch (kind) {
      case 'killRun':
        return this.kill(kind, one('run-'));
      case 'killInit':
        return this.kill(kind, one('init-'));
      case 'killEval':
        return this.kill(kind, one('eval'));
      case 'killWorkflow':
        return this.kill(kind, one('workflow'));
      case 'killHost':
        return this.kill(kind, one('host-'));
      case 'killTemporal':
        return this.kill(kind, one('temporal'));
      case 'stopRun':
        return this.suspend(random, lasts);
      case 'llmError':
        return this.refuse(kind, 'error', lasts);
      case 'llmHang':
        return this.refuse(kind, 'hang', lasts);
      case 'llmCut':
        return this.refuse(kind, 'cut', lasts);
      case 'diskFull':
        return this.fillDisk(lasts);
      case 'signals':
        return this.confuse(random.some(this.fleet.open, SIGNALLED), random);
      case 'pause':
        return this.pause(random.some(this.fleet.open, SIGNALLED), lasts);
      case 'deploy':
        return this.deploy();
    }
  }

  private async kill(kind: FaultKind, member: Member): Promise<void> {
    await member.ready;
    const pid = member.kill();
    this.note(kind, member.name, pid);
    await member.ready;
  }

  /** One that is up: the others stand still already, or are on their way up. */
  private async suspend(random: Random, ms: number): Promise<void> {
    const up = () => this.cluster.named('run-').filter(isUp);
    while (up().length === 0) await delay(50);
    const member = random.pick(up());
    const fault = this.note('stopRun', member.name, member.suspend(ms));
    await delay(ms);
    fault.endedAt = Date.now();
  }

  private async refuse(kind: FaultKind, how: Refusal, ms: number): Promise<void> {
    while (this.policy.refusal !== null) await delay(50); // one after the other
    const fault = this.note(kind, 'llm');
    this.policy.refusal = how;
    await delay(ms);
    this.policy.refusal = null;
    fault.endedAt = Date.now();
  }

  private async fillDisk(ms: number): Promise<void> {
    const { store } = this.cluster;
    if (store.problem !== null) {
      this.skipped.diskFull = store.problem;
      return;
    }
    const fault = this.note('diskFull', 'store');
    const until = Date.now() + ms;
    while (Date.now() < until) {
      await store.fill();
      await delay(20);
    }
    await store.free();
    fault.endedAt = Date.now();
  }

  /** Everything twice, in the wrong order and malformed; the last one lets the rollout go on. */
  private async confuse(flights: readonly Flight[], random: Random): Promise<void> {
    const names = flights.map(({ task }) => task.name).join();
    this.note('signals', names);
    const shuffled = [
      ...MALFORMED.map((payload) => [STAGE_STARTED_SIGNAL, payload]),
      ...MALFORMED.map((payload) => [CANCEL_SIGNAL, payload]),
      [STAGE_STARTED_SIGNAL, { attempt: 99, entry: 1, elapsedMs: 10 }],
      [STAGE_STARTED_SIGNAL, { attempt: 1, entry: 99, elapsedMs: 10 }],
      ...[PAUSE, PAUSE, RESUME, RESUME, PAUSE].map((name) => [name]),
      ...['x', null].map((payload) => [PAUSE, payload]),
    ] as [string, ...unknown[]][];
    await Promise.all(
      flights.map(async (flight) => {
        for (const [name, ...args] of random.some(shuffled, 12))
          await this.fleet.signal(flight, name, ...args);
        await this.fleet.signal(flight, RESUME);
      }),
    );
  }

  private async pause(flights: readonly Flight[], ms: number): Promise<void> {
    const fault = this.note('pause', flights.map(({ task }) => task.name).join());
    const all = (name: string) => Promise.all(flights.map((flight) => this.fleet.signal(flight, name)));
    await all(PAUSE);
    await delay(ms);
    fault.endedAt = Date.now();
    await all(RESUME);
  }

  private async deploy(): Promise<void> {
    const fault = this.note('deploy', this.deployed.join());
    for (const prefix of this.deployed) {
      for (const member of this.cluster.named(prefix)) await member.replace();
    }
    fault.endedAt = Date.now();
  }

  private note(kind: FaultKind, target: string, pid?: number): Fault {
    const at = Date.now();
    const fault = { kind, target, pid: pid ?? null, at, endedAt: at };
    this.faults.push(fault);
    this.say(`${kind}: ${target}`);
    return fault;
  }
}
