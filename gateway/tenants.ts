import type { RolloutClient } from '../client/rollout-client.ts';
import type { ConfigValues } from '../config/schema.ts';
import { visibilityQuery } from '../contracts/filter.ts';
import type { Tenant } from '../contracts/tenant.ts';
import type { Caller } from './auth.ts';
import { HttpProblem } from './problems.ts';

/** For so long a count of open rollouts is used, in milliseconds. */
const COUNT_MS = 1000;
/** What was begun longer ago than this is in Temporal's lists. */
const LISTED_MS = 2000;
/** Seconds after which a caller may try again that had too many open. */
const RETRY_AFTER_SECONDS = 5;

/** A tenant's open rollouts as this gateway knows them. */
interface Known {
  /** Of those that were begun before `before`; asked for at `at`. Times are of `Date.now()`. */
  listed: Promise<number>;
  readonly at: number;
  readonly before: number;
}

/** A rollout that was begun here. */
interface Begun {
  /** When Temporal had it; infinite until it says so. */
  at: number;
}

/** Whose rollouts a call begins, and how many of them may be open. */
export class Tenants {
  readonly #client: RolloutClient;
  readonly #shares: ConfigValues['gateway']['tenants'];
  readonly #known = new Map<string, Known>();
  /** Rollouts begun here that may not be listed yet. */
  readonly #begun = new Map<string, Begun[]>();

  constructor(client: RolloutClient, shares: ConfigValues['gateway']['tenants']) {
    this.#client = client;
    this.#shares = shares;
  }

  /**
   * The caller, by the name of its token; another where `asked` names one and the caller may do that, as may everybody
   * where no token is needed. Undefined if nobody is named.
   * @throws HttpProblem 403
   */
  of(caller: Caller | undefined, asked: string | undefined): Tenant | undefined {
    if (caller && asked !== undefined && asked !== caller.name && !caller.scopes.includes('admin')) {
      throw new HttpProblem(403, `the token of ${caller.name} begins no rollouts of ${asked}`);
    }
    const name = asked ?? caller?.name;
    if (name === undefined) return undefined;
    const { weight = 1, priority = 3 } = this.#shares[name] ?? {};
    return { name, weight, priority };
  }

  /**
   * Counts so many rollouts that are about to be begun, unless a call only asks again for what `isKnown`.
   * @returns to be called when they have been begun, or have not
   * @throws HttpProblem 429 if the tenant has as many open as it may
   */
  async admit(
    tenant: Tenant | undefined,
    rollouts: number,
    isKnown: () => Promise<boolean>,
  ): Promise<() => void> {
    const most = tenant && this.#shares[tenant.name]?.openRollouts;
    if (tenant === undefined || most === undefined) return () => {};
    const { name } = tenant;
    const known = this.#lookedUp(name);
    const listed = await known.listed;
    // From here to the end nothing else runs: of two calls at once the second counts the first.
    const begun = (this.#begun.get(name) ?? []).filter(({ at }) => at >= known.before);
    const open = listed + begun.length;
    if (open + rollouts <= most) {
      const mine: Begun[] = Array.from({ length: rollouts }, () => ({ at: Number.POSITIVE_INFINITY }));
      this.#begun.set(name, [...begun, ...mine]);
      return () => {
        for (const one of mine) one.at = Date.now();
      };
    }
    if (await isKnown()) return () => {};
    const detail = `${name} has ${open} rollouts open, and may have ${most}`;
    throw new HttpProblem(429, detail, undefined, RETRY_AFTER_SECONDS);
  }

  #lookedUp(name: string): Known {
    const at = Date.now();
    const before = this.#known.get(name);
    if (before && at - before.at < COUNT_MS) return before;
    const until = at - LISTED_MS;
    const query = `${visibilityQuery({ tenant: name })} AND ExecutionStatus = 'Running'`;
    const started = `StartTime < '${new Date(until).toISOString()}'`;
    const counted = this.#client.temporal.workflow.count(`${query} AND ${started}`);
    const known = { listed: counted.then(({ count }) => count), at, before: until };
    // Who waits for it hears of a failure; the next caller asks again.
    known.listed.catch(() => this.#known.delete(name));
    this.#known.set(name, known);
    return known;
  }
}
