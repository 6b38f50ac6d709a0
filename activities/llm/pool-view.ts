import { setTimeout as delay } from 'node:timers/promises';
import { RolloutError } from '../../contracts/failures.ts';
import { POLICY_LABEL, type PoolState } from '../../contracts/pool.ts';
import type { OpenPolicy } from '../run.ts';
import { type BackOff, Balancer, DEFAULT_BACK_OFF } from './balance/balancer.ts';
import { ExpectedTurn } from './balance/expected-turn.ts';
import { Lease } from './balance/lease.ts';
import { type Claim, type JoinedMember, Member } from './balance/member.ts';
import { type PoolAccess, PooledPolicy, type Wanted } from './balance/pooled-policy.ts';
import { Bell } from './bell.ts';
import type { ServerLoad } from './dialect.ts';
import { makeDialect } from './dialects.ts';
import type { HttpTimeouts } from './http.ts';

/** A server that is asked whether it is back must answer within this time. */
const PROBE_MS = 10_000;
/** How often servers that work are asked how much they have to do. */
const LOAD_EVERY_MS = 5_000;

const now = () => performance.now();

export interface PoolViewOptions {
  readonly timeouts?: Partial<HttpTimeouts>;
  readonly backOff?: BackOff;
  /** Told of every state of the pool that is acted on. */
  readonly changed?: (state: PoolState) => void;
}

/**
 * The pool as one run worker sees it, for as long as its lease lasts; without one, no request begins. Each rollout
 * gets the least loaded server of its label that answers, and stays there. One that fails is left alone, asked after
 * a while whether it is back, and then gets rollouts again. While there is none, rollouts wait.
 */
export class PoolView implements PoolAccess {
  readonly expected = new ExpectedTurn();
  readonly lease: Lease;
  readonly #balancer: Balancer<Member>;
  readonly #timeouts: Partial<HttpTimeouts>;
  readonly #changed: (state: PoolState) => void;
  readonly #members = new Map<string, Member>();
  /** Servers that are no longer the pool's and have requests under way. */
  readonly #retired = new Set<Member>();
  readonly #floors = new Set<(floor: number) => void>();
  readonly #bell = new Bell();
  readonly #closing = new AbortController();
  #probing: NodeJS.Timeout | undefined;
  #expiring: NodeJS.Timeout | undefined;

  /** `worker` is the name under which the pool is asked. */
  constructor(
    worker: string,
    { timeouts = {}, backOff = DEFAULT_BACK_OFF, changed = () => {} }: PoolViewOptions = {},
  ) {
    this.lease = new Lease(worker);
    this.#changed = changed;
    this.#timeouts = timeouts;
    this.#balancer = new Balancer(backOff);
    void this.#watchLoads();
  }

  /** Servers with the load that this worker's rollouts put on them. */
  get loads(): { readonly url: string; readonly load: number; readonly healthy: boolean }[] {
    return this.#balancer.members.map((member) => ({
      url: member.server.url,
      load: this.#balancer.loadOf(member),
      healthy: this.#balancer.isHealthy(member),
    }));
  }

  /** How much servers, those of `label` if it is given, say that they have to do, of those that tell. */
  async serverLoads(
    signal: AbortSignal,
    label?: string,
  ): Promise<{ readonly url: string; readonly load: ServerLoad }[]> {
    const asked = this.#balancer.members.filter(
      ({ labels }) => label === undefined || labels.includes(label),
    );
    const told = await Promise.all(
      asked.map(async ({ server: { url }, dialect }) => ({
        url,
        load: await dialect.load(signal).catch(() => null), // one that fails is left alone by those who need it
      })),
    );
    return told.flatMap(({ url, load }) => (load ? [{ url, load }] : []));
  }

  /** Acts on what the pool told when it was asked at `askedAt` (of `performance.now`). */
  take(state: PoolState, askedAt: number): void {
    const before = this.lease.state;
    if (!this.lease.take(state, askedAt, now())) return;
    clearTimeout(this.#expiring);
    this.#expiring = setTimeout(() => this.#expired(), Math.max(0, this.lease.until - now()));
    this.#expiring.unref();
    if (state.epoch !== before?.epoch) this.#changeTo(state);
    this.#changed(state);
    if (state.floor !== before?.floor) for (const told of this.#floors) told(state.floor);
    this.#bell.ring();
  }

  async open(
    rolloutId: string,
    { signal, label = POLICY_LABEL, onWaiting = () => {}, onFloor }: OpenPolicy,
  ): Promise<PooledPolicy> {
    if (onFloor) {
      this.#floors.add(onFloor);
      if (this.lease.state) onFloor(this.lease.state.floor);
    }
    const closed = () => {
      if (onFloor) this.#floors.delete(onFloor);
    };
    try {
      const wanted: Wanted = { key: `${rolloutId} ${label}`, label, signal, suits: () => true, onWaiting };
      return new PooledPolicy(this, wanted, await this.join(wanted), closed);
    } catch (error) {
      closed();
      throw error;
    }
  }

  async join(wanted: Wanted): Promise<JoinedMember> {
    const { key, label, signal, suits } = wanted;
    const mayServe = (member: Member) => member.labels.includes(label) && suits(member);
    let waiting = false;
    const waits = (does: boolean) => {
      if (does !== waiting) wanted.onWaiting(does);
      waiting = does;
    };
    try {
      for (;;) {
        const withRoom = (member: Member) => mayServe(member) && member.limit.hasRoom;
        const live = this.lease.isLive(now());
        const member = live ? this.#balancer.choose(key, this.expected.idle, withRoom) : undefined;
        if (member) {
          // Looked at anew each time: another model may have been put behind the address, whose version nobody knows.
          const model = await this.#opened(member, signal);
          if (model && suits(member)) return member as JoinedMember;
          continue;
        }
        if (live) this.#refuseImpossible(wanted);
        // Waiting for room on a server that works is not waiting for a server.
        waits(!live || !this.#balancer.members.some((one) => mayServe(one) && this.#balancer.isHealthy(one)));
        await this.#bell.heard(signal);
      }
    } finally {
      waits(false);
    }
  }

  claim(member: JoinedMember): Claim | undefined {
    if (!this.isUsable(member) || !member.limit.hasRoom) return undefined;
    const at = now();
    if (!this.lease.isLive(at)) return undefined;
    return member.claim(
      () => this.lease.heldSince(at, now()),
      () => this.#bell.ring(),
    );
  }

  isUsable(member: Member): boolean {
    return this.#balancer.isHealthy(member);
  }

  lay(key: string, load: number): void {
    this.#balancer.lay(key, load);
  }

  release(key: string): void {
    this.#balancer.release(key);
    this.#bell.ring();
  }

  failed(member: Member): void {
    this.#balancer.fail(member, Date.now());
    this.#scheduleProbe();
  }

  /** Returns when no request of this worker is under way on these servers. */
  async settled(urls: readonly string[], signal: AbortSignal): Promise<void> {
    const busy = () =>
      [...this.#members.values(), ...this.#retired].some(
        (member) => urls.includes(member.server.url) && !member.isIdle,
      );
    while (busy()) await this.#bell.heard(signal);
  }

  /** Nothing begins any more. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.lease.giveUp();
    clearTimeout(this.#probing);
    clearTimeout(this.#expiring);
    await Promise.all([...this.#members.values(), ...this.#retired].map(({ dialect }) => dialect.close()));
  }

  #changeTo({ members }: PoolState): void {
    const gone = new Set(this.#members.keys());
    for (const known of members) {
      const { url, dialect } = known.server;
      gone.delete(url);
      const there = this.#members.get(url);
      if (there && !there.isSame(known)) this.#retire(url, there);
      const member =
        there && this.#members.get(url)
          ? there
          : new Member(known, makeDialect(dialect, url, this.#timeouts));
      this.#members.set(url, member);
      member.become(known);
      if (member.isActive) this.#balancer.add(member);
      else this.#balancer.remove(member);
    }
    for (const url of gone) this.#retire(url, this.#members.get(url) as Member);
  }

  /** Its requests under way end by themselves. */
  #retire(url: string, member: Member): void {
    this.#members.delete(url);
    this.#balancer.remove(member);
    member.withdraw();
    this.#retired.add(member);
    void this.settled([url], this.#closing.signal).then(
      async () => {
        this.#retired.delete(member);
        await member.dialect.close();
      },
      () => {}, // closed with everything else
    );
  }

  /** Its lease has run out: what has not begun does not begin. */
  #expired(): void {
    if (this.lease.isLive(now())) return;
    for (const member of this.#members.values()) member.withdraw();
    this.#bell.ring();
  }

  async #opened(member: Member, signal: AbortSignal): Promise<boolean> {
    try {
      if (await member.look(signal)) return true;
    } catch (error) {
      if (!(error instanceof RolloutError) || error.type !== 'LlmUnreachable') throw error;
    }
    this.failed(member);
    return false;
  }

  /** @throws LlmUnsuitable if the pool has servers of the label and none of them could ever serve this. */
  #refuseImpossible({ label, suits }: Wanted): void {
    const those = [...this.#members.values()].filter(({ labels }) => labels.includes(label));
    if (those.length === 0 || those.some(suits)) return;
    const urls = those.map(({ server }) => server.url).join(', ');
    const what = 'have another tokenizer, template or shorter context than it began with';
    throw new RolloutError('LlmUnsuitable', `no server can go on with this rollout: ${urls} ${what}`);
  }

  /** Asks members that were left alone long enough whether they are back. */
  #scheduleProbe(): void {
    const due = this.#balancer.nextDue();
    clearTimeout(this.#probing);
    if (due === undefined || this.#closing.signal.aborted) return;
    this.#probing = setTimeout(() => void this.#probe(), Math.max(0, due - Date.now()));
    this.#probing.unref();
  }

  async #probe(): Promise<void> {
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(PROBE_MS)]);
    await Promise.all(
      this.#balancer.due(Date.now()).map((member) =>
        member.dialect.health(signal).then(
          () => this.#balancer.recover(member),
          () => this.#balancer.fail(member, Date.now()),
        ),
      ),
    );
    this.#bell.ring();
    this.#scheduleProbe();
  }

  /** A server that lets more wait than it works on has too many. */
  async #watchLoads(): Promise<void> {
    const { signal } = this.#closing;
    while (await delay(LOAD_EVERY_MS, true, { signal, ref: false }).catch(() => false)) {
      const busy = this.#balancer.members.filter(({ limit }) => limit.open > 1);
      await Promise.all(
        busy.map(async ({ dialect, limit }) => {
          // A server that cannot say so says it by how it serves.
          const load = await dialect.load(signal).catch(() => null);
          if (load && load.waiting > load.running) limit.congested();
        }),
      );
    }
  }
}
