import { RolloutError } from '../../../contracts/failures.ts';
import type { Generated, GenerateRequest, PolicySpan, Sampled } from '../../../contracts/llm.ts';
import type { ToolSpec } from '../../../contracts/tools.ts';
import type { ChatMessage, ModelIdentity } from '../../../contracts/trajectory.ts';
import type { Policy } from '../../agent/agent.ts';
import { HttpRefused } from '../http.ts';
import type { Model } from '../model.ts';
import type { ExpectedTurn } from './expected-turn.ts';
import type { Claim, JoinedMember, Member } from './member.ts';

/** Who wants a server, and which. */
export interface Wanted {
  /** Whoever keeps its server by this name. */
  readonly key: string;
  readonly label: string;
  readonly signal: AbortSignal;
  suits(member: Member): boolean;
  /** Told when no server could serve whatever was asked of it, and when one can again. */
  onWaiting(waiting: boolean): void;
}

/** What a policy asks of its pool. */
export interface PoolAccess {
  readonly expected: ExpectedTurn;
  /** Waits for a server that a request may go to, the one that `key` has before others; its model is looked at. */
  join(wanted: Wanted): Promise<JoinedMember>;
  /** A request that may begin there now; undefined if none may. */
  claim(member: JoinedMember): Claim | undefined;
  /** It can be asked for other things than tokens. */
  isUsable(member: Member): boolean;
  /** What the one with this name is expected to ask of its server. */
  lay(key: string, load: number): void;
  /** A member has failed: it is left alone for a while. */
  failed(member: Member): void;
  release(key: string): void;
}

/** So often in a row may a server break a request off before a token came: while its weights are swapped, once. */
const MOST_EMPTY = 3;
/** So often may one request fail, on whichever servers: it may be what they fail of. */
const MOST_FAILURES = 3;

/** Only tells requests apart that are bounded by the dialect's own time-outs. */
const UNBOUNDED = new AbortController().signal;

/**
 * The policy of one rollout, on one server as long as that answers, then on another of the same tokenizer and
 * template; while there is none it waits. Tokens that came before a server died are returned as those of a turn that
 * was broken off, with that server's version; the rest of the turn is the next server's.
 */
export class PooledPolicy implements Policy {
  readonly identity: ModelIdentity;
  readonly contextTokens: number;
  readonly opensThoughts: boolean;
  readonly #wanted: Wanted;
  readonly #pool: PoolAccess;
  readonly #closed: () => void;
  #member: JoinedMember;
  #empty = 0;

  /** `wanted` is how its first `member` was found. */
  constructor(pool: PoolAccess, wanted: Wanted, member: JoinedMember, closed: () => void) {
    this.#pool = pool;
    this.#wanted = { ...wanted, suits: (other) => this.#canGoOn(other) };
    this.#closed = closed;
    this.#member = member;
    this.identity = member.model.identity;
    this.contextTokens = member.model.contextTokens;
    this.opensThoughts = member.model.renderer.opensThoughts;
  }

  /** The server that it has. */
  get server(): string {
    return this.#member.server.url;
  }

  async generate(request: GenerateRequest, signal: AbortSignal): Promise<Sampled> {
    for (let failures = 0; ; ) {
      const claim = await this.#begin(signal).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
      if (!claim) return { ids: [], logprobs: [], finish: 'abort', server: this.server, versions: [] };
      try {
        const sampled = await this.#sample(claim, request, signal);
        if (sampled) return sampled;
      } catch (error) {
        if (isRefusedForNow(error) && claim.tooMany()) continue;
        if (!isUnreachable(error)) throw error;
        this.#pool.failed(claim.member);
        if (++failures >= MOST_FAILURES) throw error;
      } finally {
        claim.end();
      }
    }
  }

  text(ids: readonly number[]): Promise<string> {
    return this.#anywhere(({ model: { codec, renderer } }) =>
      codec.detokenize(renderer.ends(ids) ? ids.slice(0, -1) : ids, UNBOUNDED),
    );
  }

  renderPrompt(messages: readonly ChatMessage[], tools?: readonly ToolSpec[]): Promise<number[]> {
    return this.#anywhere(({ model }) => model.renderer.initial(messages, UNBOUNDED, tools));
  }

  renderDelta(sampled: readonly number[], messages: readonly ChatMessage[]): Promise<number[]> {
    return this.#anywhere(({ model }) => model.renderer.delta(sampled, messages, UNBOUNDED));
  }

  close(): void {
    this.#pool.release(this.#wanted.key);
    this.#closed();
  }

  /** Waits until a request may begin. @throws the signal's reason */
  async #begin(signal: AbortSignal): Promise<Claim> {
    for (;;) {
      signal.throwIfAborted();
      const claim = this.#canGoOn(this.#member) ? this.#pool.claim(this.#member) : undefined;
      if (claim) return claim;
      this.#member = await this.#pool.join({ ...this.#wanted, signal });
    }
  }

  /** Undefined if it was not to begin after all: nothing of it counts. */
  async #sample(claim: Claim, request: GenerateRequest, signal: AbortSignal): Promise<Sampled | undefined> {
    const { dialect, model } = claim.member;
    const { expected } = this.#pool;
    const { key } = this.#wanted;
    const ids: number[] = [];
    const logprobs: number[] = [];
    const lay = (load: number) => this.#pool.lay(key, load);
    lay(expected.sampling(0));
    const either = AbortSignal.any([signal, claim.signal]);
    const sent = { ...request, stopIds: model.renderer.stopIds };
    let generated: Generated;
    let same: Promise<boolean> | undefined;
    try {
      generated = await dialect.generate(sent, either, (moreIds, moreLogprobs) => {
        if (!claim.begin()) return;
        same ??= sameModel(claim.member, either);
        ids.push(...moreIds);
        logprobs.push(...moreLogprobs);
        lay(expected.sampling(ids.length));
      });
    } catch (error) {
      if (!isUnreachable(error) || ids.length === 0) throw error;
      // What came stands, with this server's name and version; the agent asks for the rest.
      this.#pool.failed(claim.member);
      generated = { ids, logprobs, finish: 'abort' };
    } finally {
      lay(expected.idle);
    }
    if (claim.isVoid) return undefined;
    if ((await same) === false) {
      const what = `${claim.member.server.url} has another model than the pool knows there`;
      throw new RolloutError('LlmUnreachable', `${what}: was it started again?`);
    }
    if (generated.finish !== 'abort') {
      claim.served();
      expected.saw(generated.ids.length);
    }
    this.#countEmpty(generated, claim, signal);
    return this.#sampled(generated, claim);
  }

  #sampled(generated: Generated, claim: Claim): Sampled | undefined {
    // Cut off while weights were loaded under it, before the server had told which tokens are whose.
    if (claim.swapped && !generated.versions) return undefined;
    const { model, server } = claim.member;
    const { url } = server;
    return { ...finished(generated, model), server: url, versions: policySpans(generated, claim, url) };
  }

  /** @throws LlmUnreachable if the server breaks off one request after the other */
  #countEmpty({ ids, finish }: Generated, { member }: Claim, signal: AbortSignal): void {
    const empty = finish === 'abort' && ids.length === 0 && !signal.aborted;
    this.#empty = empty ? this.#empty + 1 : 0;
    if (this.#empty <= MOST_EMPTY) return;
    this.#empty = 0;
    const { url } = member.server;
    throw new RolloutError('LlmUnreachable', `${url} breaks requests off before a token has come`);
  }

  /** Does something that is no sampling, on the rollout's server or another that can go on for it. */
  async #anywhere<R>(work: (member: JoinedMember) => Promise<R>): Promise<R> {
    for (let failures = 0; ; ) {
      const { model, dialect } = this.#member;
      // A tokenizer of a folder needs no server.
      if (model.codec !== dialect.codec || this.#pool.isUsable(this.#member)) {
        try {
          return await work(this.#member);
        } catch (error) {
          if (!isUnreachable(error)) throw error;
          this.#pool.failed(this.#member);
          if (++failures >= MOST_FAILURES) throw error;
        }
      }
      this.#member = await this.#pool.join(this.#wanted);
    }
  }

  /** Tokens must mean the same there, and as many must fit. */
  #canGoOn({ model }: Member): boolean {
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
 * The policy version of each token: as the server tells, where it calls it by its number; else the one that the pool
 * knows by that name.
 * @throws LlmUnreachable if it has another name: then nobody knows which weights they are
 */
function policySpans(
  { ids, versions }: Generated,
  { version: known, versionName }: Claim,
  url: string,
): PolicySpan[] {
  if (!versions) return [{ version: known, start: 0, end: ids.length }];
  return versions.map(({ version, start, end }) => {
    if (/^\d{1,15}$/.test(version)) return { version: Number(version), start, end };
    if (versionName === null || version === versionName) return { version: known, start, end };
    const what = `${url} says that its weights are "${version}", the pool knows "${versionName}"`;
    throw new RolloutError('LlmUnreachable', `${what}: was it started again?`);
  });
}

/**
 * Looks at a server while it answers, if it may have been started again since: nothing else tells that its tokens are
 * another model's. One that cannot be looked at has shown nothing against them.
 */
async function sameModel(member: Member, signal: AbortSignal): Promise<boolean> {
  try {
    return await member.look(signal);
  } catch (error) {
    return !(error instanceof RolloutError) || error.type !== 'LlmUnsuitable';
  }
}

function isUnreachable(error: unknown): boolean {
  return error instanceof RolloutError && error.type === 'LlmUnreachable';
}

/** 429 and 503 say that a server has too much to do, not that it is broken. */
function isRefusedForNow(error: unknown): boolean {
  return error instanceof HttpRefused && (error.status === 429 || error.status === 503);
}
