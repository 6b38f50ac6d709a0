import { RolloutError } from '../../../contracts/failures.ts';
import type { Generated, GenerateRequest, LlmServer, PolicySpan, Sampled } from '../../../contracts/llm.ts';
import type { ToolSpec } from '../../../contracts/tools.ts';
import type { ChatMessage, ModelIdentity } from '../../../contracts/trajectory.ts';
import type { Policy } from '../../agent/agent.ts';
import type { LlmDialect } from '../dialect.ts';
import type { Model } from '../model.ts';
import type { Balancer } from './balancer.ts';
import type { ExpectedTurn } from './expected-turn.ts';

/** A server of the pool with the model that was found there. */
export interface PoolMember {
  readonly server: LlmServer;
  readonly dialect: LlmDialect;
  model?: Model;
}

/** What a policy asks of its pool. */
export interface PoolAccess {
  readonly balancer: Balancer<PoolMember>;
  readonly expected: ExpectedTurn;
  /** A member that answers, the rollout's own before others; its model is looked at. */
  join(
    rolloutId: string,
    signal: AbortSignal,
    suits?: (member: PoolMember) => boolean,
  ): Promise<JoinedMember>;
  /** A member has failed: it is left alone for a while. */
  failed(member: PoolMember): void;
}

export interface JoinedMember extends PoolMember {
  model: Model;
}

/** So often in a row may a server break a request off before a token came: while its weights are swapped, once. */
const MOST_EMPTY = 3;

/** Only tells requests apart that are bounded by the dialect's own time-outs. */
const UNBOUNDED = new AbortController().signal;

/**
 * The policy of one rollout, on one server as long as that answers, then on another of the same tokenizer and
 * template. Tokens that came before a server died are returned as those of a turn that was broken off, with that
 * server's version; the rest of the turn is the next server's.
 */
export class PooledPolicy implements Policy {
  readonly identity: ModelIdentity;
  readonly contextTokens: number;
  readonly opensThoughts: boolean;
  readonly #rolloutId: string;
  readonly #pool: PoolAccess;
  #member: JoinedMember;
  #empty = 0;

  constructor(rolloutId: string, pool: PoolAccess, member: JoinedMember) {
    this.#rolloutId = rolloutId;
    this.#pool = pool;
    this.#member = member;
    this.identity = member.model.identity;
    this.contextTokens = member.model.contextTokens;
    this.opensThoughts = member.model.renderer.opensThoughts;
  }

  /** The server that the last tokens came from. */
  get server(): string {
    return this.#member.server.url;
  }

  generate(request: GenerateRequest, signal: AbortSignal): Promise<Sampled> {
    const { balancer, expected } = this.#pool;
    return this.#onAnother(async ({ dialect, model, server: { url, policyVersion } }) => {
      const sampled = (generated: Generated): Sampled => ({
        ...finished(generated, model),
        server: url,
        versions: policySpans(generated, policyVersion),
      });
      const ids: number[] = [];
      const logprobs: number[] = [];
      balancer.lay(this.#rolloutId, expected.sampling(0));
      try {
        const sent = { ...request, stopIds: model.renderer.stopIds };
        const generated = await dialect.generate(sent, signal, (moreIds, moreLogprobs) => {
          ids.push(...moreIds);
          logprobs.push(...moreLogprobs);
          balancer.lay(this.#rolloutId, expected.sampling(ids.length));
        });
        if (generated.finish !== 'abort') expected.saw(generated.ids.length);
        const empty = generated.finish === 'abort' && generated.ids.length === 0 && !signal.aborted;
        this.#empty = empty ? this.#empty + 1 : 0;
        if (this.#empty > MOST_EMPTY) {
          this.#empty = 0;
          const what = `${this.server} breaks requests off before a token has come`;
          throw new RolloutError('LlmUnreachable', what);
        }
        return sampled(generated);
      } catch (error) {
        if (!isUnreachable(error) || ids.length === 0) throw error;
        // What came stands, with this server's name and version; the agent asks for the rest.
        this.#pool.failed(this.#member);
        return sampled({ ids, logprobs, finish: 'abort' });
      } finally {
        balancer.lay(this.#rolloutId, expected.idle);
      }
    }, signal);
  }

  text(ids: readonly number[]): Promise<string> {
    return this.#onAnother(({ model: { codec, renderer } }) =>
      codec.detokenize(renderer.ends(ids) ? ids.slice(0, -1) : ids, UNBOUNDED),
    );
  }

  renderPrompt(messages: readonly ChatMessage[], tools?: readonly ToolSpec[]): Promise<number[]> {
    return this.#onAnother(({ model }) => model.renderer.initial(messages, UNBOUNDED, tools));
  }

  renderDelta(sampled: readonly number[], messages: readonly ChatMessage[]): Promise<number[]> {
    return this.#onAnother(({ model }) => model.renderer.delta(sampled, messages, UNBOUNDED));
  }

  close(): void {
    this.#pool.balancer.release(this.#rolloutId);
  }

  /**
   * Does something on the rollout's server, and if that does not answer, once on each other one that can go on
   * for it.
   */
  async #onAnother<R>(work: (member: JoinedMember) => Promise<R>, signal = UNBOUNDED): Promise<R> {
    const tried = new Set<PoolMember>();
    const suits = (member: PoolMember) => !tried.has(member) && this.#canGoOn(member);
    let failure: unknown;
    for (;;) {
      if (failure !== undefined || !this.#pool.balancer.isHealthy(this.#member)) {
        this.#member = await this.#pool.join(this.#rolloutId, signal, suits).catch((none: unknown) => {
          // What the last server said, not that there is no other.
          throw isUnreachable(none) ? (failure ?? none) : none;
        });
      }
      try {
        return await work(this.#member);
      } catch (error) {
        if (!isUnreachable(error)) throw error;
        failure = error;
        this.#pool.failed(this.#member);
        tried.add(this.#member);
      }
    }
  }

  /** Tokens must mean the same there, and as many must fit. */
  #canGoOn({ model }: PoolMember): boolean {
    return (
      model === undefined ||
      (model.identity.tokenizer_hash === this.identity.tokenizer_hash &&
        model.identity.template_hash === this.identity.template_hash &&
        model.contextTokens >= this.contextTokens)
    );
  }
}

/** Broken off when its last token had come but not yet word of the end: there is nothing to go on with. */
function finished(generated: Generated, { renderer }: Model): Generated {
  const last = generated.ids.at(-1);
  const whole = generated.finish === 'abort' && last !== undefined && renderer.stopIds.includes(last);
  return whole ? { ...generated, finish: 'stop' } : generated;
}

/**
 * The policy version of each token: as the server tells, where it calls it by its number; else, for what it was
 * started with, the one that the pool knows it has.
 */
function policySpans({ ids, versions }: Generated, policyVersion: number): PolicySpan[] {
  if (!versions) return [{ version: policyVersion, start: 0, end: ids.length }];
  return versions.map(({ version, start, end }) => ({
    version: /^\d{1,15}$/.test(version) ? Number(version) : policyVersion,
    start,
    end,
  }));
}

function isUnreachable(error: unknown): boolean {
  return error instanceof RolloutError && error.type === 'LlmUnreachable';
}
