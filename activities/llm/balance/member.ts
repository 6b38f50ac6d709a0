import { isDeepStrictEqual } from 'node:util';
import type { LlmServer } from '../../../contracts/llm.ts';
import type { PoolMember } from '../../../contracts/pool.ts';
import type { ModelIdentity } from '../../../contracts/trajectory.ts';
import type { LlmDialect } from '../dialect.ts';
import { type Model, openModel } from '../model.ts';
import { ConcurrencyLimit } from './concurrency-limit.ts';

/** A server of the pool as one run worker uses it. */
export class Member {
  readonly dialect: LlmDialect;
  readonly limit = new ConcurrencyLimit();
  /** The model as it was found here last, and how many connections had been opened by then. */
  model?: Model;
  #lookedAt = -1;
  /** Under what the pool knows of it now, it has served this model. */
  #identity: ModelIdentity | undefined;
  #known: PoolMember;
  readonly #claims = new Set<Claim>();

  constructor(known: PoolMember, dialect: LlmDialect) {
    this.#known = known;
    this.dialect = dialect;
  }

  get server(): LlmServer {
    return this.#known.server;
  }

  /** What the server calls the version of its weights, as far as the pool knows. */
  get versionName(): string | null {
    return this.#known.facts.version;
  }

  get labels(): readonly string[] {
    return this.#known.labels;
  }

  get isActive(): boolean {
    return this.#known.state === 'active';
  }

  /** No request is under way. */
  get isIdle(): boolean {
    return this.#claims.size === 0;
  }

  /** False if it is another server than before, behind the same address or to be read otherwise. */
  isSame({ server: { dialect, tokenizer, contextTokens } }: PoolMember): boolean {
    const { server } = this;
    return (
      server.dialect === dialect && server.tokenizer === tokenizer && server.contextTokens === contextTokens
    );
  }

  /**
   * Looks at the model behind its address, unless every connection was open when it was looked at last: a server that
   * is started again closes them.
   * @returns false if it is another model than the pool knows there
   * @throws RolloutError LlmUnreachable, LlmUnsuitable
   */
  async look(signal: AbortSignal): Promise<boolean> {
    const { connections } = this.dialect;
    if (this.#identity && this.#lookedAt === connections) return true;
    const model = await openModel(this.server, this.dialect, signal, this.model);
    if (this.#identity && !isDeepStrictEqual(this.#identity, model.identity)) return false;
    this.#identity = model.identity;
    this.model = model;
    this.#lookedAt = connections;
    return true;
  }

  /** What the pool says of it from now on. Requests without a token yet do not begin where none is to begin. */
  become(known: PoolMember): void {
    const { policyVersion } = this.server;
    const anew =
      known.server.policyVersion !== policyVersion || !isDeepStrictEqual(known.facts, this.#known.facts);
    if (anew) this.#identity = undefined;
    this.#known = known;
    const swapped = known.loading !== null || known.server.policyVersion !== policyVersion;
    if (swapped) for (const claim of this.#claims) claim.swapped = true;
    if (!this.isActive) this.withdraw();
  }

  /** Ends requests that have no token yet. */
  withdraw(): void {
    for (const claim of this.#claims) claim.withdraw();
  }

  /** A request begins. `holds` says whether it still may when its first token has come. */
  claim(this: JoinedMember, holds: () => boolean, ended: () => void): Claim {
    const claim: Claim = new Claim(this, this.limit.begin(), holds, () => {
      this.#claims.delete(claim);
      this.limit.end();
      ended();
    });
    claim.swapped = this.#known.loading !== null;
    this.#claims.add(claim);
    return claim;
  }
}

/** A member whose model has been looked at. */
export type JoinedMember = Member & { model: Model };

/** One request that a run worker may begin, until its first token; from then on it is under way. */
export class Claim {
  readonly member: JoinedMember;
  /** Policy version of the server when the request began, and the server's own name of it. */
  readonly version: number;
  readonly versionName: string | null;
  /** Weights were loaded while it was under way: only the server knows which tokens are whose. */
  swapped = false;
  readonly #number: number;
  readonly #holds: () => boolean;
  readonly #end: () => void;
  readonly #withdrawal = new AbortController();
  #begun = false;

  constructor(member: JoinedMember, number: number, holds: () => boolean, end: () => void) {
    this.#number = number;
    this.#holds = holds;
    this.#end = end;
    this.member = member;
    this.version = member.server.policyVersion;
    this.versionName = member.versionName;
  }

  /** Aborts when the request is not to begin after all. */
  get signal(): AbortSignal {
    return this.#withdrawal.signal;
  }

  /** It did not begin: what came of it does not count. */
  get isVoid(): boolean {
    return this.signal.aborted;
  }

  /** Its first token has come. @returns false if it may not have begun: its lease ran out meanwhile */
  begin(): boolean {
    if (this.#begun || this.isVoid) return this.#begun;
    if (!this.#holds()) this.withdraw();
    else this.#begun = true;
    return this.#begun;
  }

  withdraw(): void {
    if (!this.#begun) this.#withdrawal.abort(new Error('the server is no longer to be asked'));
  }

  /** The server has served it. */
  served(): void {
    this.member.limit.served();
  }

  /** The server says that it has too many. @returns false if this was the only one: then that is no reason */
  tooMany(): boolean {
    if (this.member.limit.open <= 1) return false;
    this.member.limit.congested(this.#number);
    return true;
  }

  end(): void {
    this.#end();
  }
}
