import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import type { OpenPolicy } from '../run.ts';
import { type BackOff, Balancer, DEFAULT_BACK_OFF } from './balance/balancer.ts';
import { ExpectedTurn } from './balance/expected-turn.ts';
import {
  type JoinedMember,
  type PoolAccess,
  PooledPolicy,
  type PoolMember,
} from './balance/pooled-policy.ts';
import { makeDialect } from './dialects.ts';
import type { HttpTimeouts } from './http.ts';
import { openModel } from './model.ts';

/** A server that is asked whether it is back must answer within this time. */
const PROBE_MS = 10_000;

/**
 * The LLM servers of a run worker. Each rollout gets the least loaded one that answers and stays there. One that
 * fails is left alone, asked after a while whether it is back, and then gets rollouts again.
 */
export class LlmServers implements PoolAccess {
  readonly balancer: Balancer<PoolMember>;
  readonly expected = new ExpectedTurn();
  readonly #closing = new AbortController();
  #probing: NodeJS.Timeout | undefined;

  constructor(
    servers: readonly LlmServer[],
    timeouts: Partial<HttpTimeouts> = {},
    backOff: BackOff = DEFAULT_BACK_OFF,
  ) {
    this.balancer = new Balancer(backOff);
    for (const server of servers) {
      this.balancer.add({ server, dialect: makeDialect(server.dialect, server.url, timeouts) });
    }
  }

  /**
   * A policy on the least loaded server that answers.
   * @throws RolloutError LlmUnreachable if none answers, LlmUnsuitable if the model cannot be used.
   */
  async open(rolloutId: string, { signal }: OpenPolicy): Promise<PooledPolicy> {
    return new PooledPolicy(rolloutId, this, await this.join(rolloutId, signal));
  }

  async join(
    rolloutId: string,
    signal: AbortSignal,
    suits: (member: PoolMember) => boolean = () => true,
  ): Promise<JoinedMember> {
    const tried = new Map<PoolMember, string>();
    const untried = (member: PoolMember) => !tried.has(member) && suits(member);
    for (;;) {
      // Those that are left alone are asked as well before a rollout is told that there is none.
      const member =
        this.balancer.choose(rolloutId, this.expected.idle, untried) ?? this.balancer.members.find(untried);
      if (!member) break;
      try {
        // Looked at anew each time, since another model may have been put behind the address.
        member.model = await openModel(member.server, member.dialect, signal, member.model);
        if (!this.balancer.isHealthy(member)) this.balancer.recover(member);
        if (suits(member) && this.balancer.choose(rolloutId, this.expected.idle, (one) => one === member)) {
          return member as JoinedMember;
        }
        tried.set(member, `${member.server.url} has another tokenizer, template or context`);
      } catch (error) {
        if (!(error instanceof RolloutError) || error.type !== 'LlmUnreachable') throw error;
        this.failed(member);
        tried.set(member, messageOf(error));
      }
    }
    const why = [...tried.values()].join('; ') || 'no LLM server is configured (llm.servers)';
    throw new RolloutError('LlmUnreachable', why);
  }

  failed(member: PoolMember): void {
    this.balancer.fail(member, Date.now());
    this.#scheduleProbe();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    clearTimeout(this.#probing);
    await Promise.all(this.balancer.members.map(({ dialect }) => dialect.close()));
  }

  /** Asks members that were left alone long enough whether they are back. */
  #scheduleProbe(): void {
    const due = this.balancer.nextDue();
    clearTimeout(this.#probing);
    if (due === undefined || this.#closing.signal.aborted) return;
    this.#probing = setTimeout(() => void this.#probe(), Math.max(0, due - Date.now()));
    this.#probing.unref();
  }

  async #probe(): Promise<void> {
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(PROBE_MS)]);
    await Promise.all(
      this.balancer.due(Date.now()).map((member) =>
        member.dialect.health(signal).then(
          () => this.balancer.recover(member),
          () => this.balancer.fail(member, Date.now()),
        ),
      ),
    );
    this.#scheduleProbe();
  }
}
