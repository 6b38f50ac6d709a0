import {
  ApplicationFailure,
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  defineUpdate,
  setCurrentDetails,
  setHandler,
  workflowInfo,
} from '@temporalio/workflow';
import { messageOf } from '../contracts/failures.ts';
import type { LlmServer } from '../contracts/llm.ts';
import {
  JOIN_SIGNAL,
  LEAVE_SIGNAL,
  type ModelFacts,
  POOL_STATE_QUERY,
  POOL_UPDATES,
  type PoolInput,
  type PoolMember,
  type PoolReport,
  type PoolState,
  type PoolUpdate,
  versionOf,
  type WorkerSignal,
} from '../contracts/pool.ts';
import type {
  AddServer,
  DrainServer,
  LabelServer,
  RaiseFloor,
  RemoveServer,
  SwapWeights,
} from '../contracts/pool-commands.ts';
import { onSignal } from './guarded-signal.ts';
import { workerProblem } from './guards.ts';
import { poolProblem } from './pool-guards.ts';
import { probed, reasonOf, servers } from './pool-servers.ts';
import * as state from './pool-state.ts';
import { PoolWorkers } from './pool-workers.ts';

/** Updates after which the workflow goes on under a new history. */
const MOST_UPDATES = 50;

type InPlace = Extract<SwapWeights, { folder: string }>;
type BlueGreen = Extract<SwapWeights, { servers: unknown }>;
type Failed = { readonly url: string; readonly why: string };

/** The pool of LLM servers: the only one to change it, one change after the other. It never ends by itself. */
export async function llmPool(input: PoolInput): Promise<void> {
  const pool = new LlmPool(input);
  for (const name of POOL_UPDATES) {
    setHandler(defineUpdate<PoolReport, [unknown]>(name), (payload) => pool.change(name, payload), {
      validator: (payload) => {
        const problem = poolProblem(name, payload);
        if (problem) throw ApplicationFailure.nonRetryable(problem, 'InvalidRequest');
      },
    });
  }
  onSignal<WorkerSignal>(JOIN_SIGNAL, workerProblem, ({ worker }) => pool.workers.join(worker));
  onSignal<WorkerSignal>(LEAVE_SIGNAL, workerProblem, ({ worker }) => pool.workers.leave(worker));
  setHandler(defineQuery<PoolState>(POOL_STATE_QUERY), () => pool.state);
  await condition(() => pool.long && allHandlersFinished() && pool.workers.accounted);
  await continueAsNew<typeof llmPool>({ ...input, state: pool.state });
}

class LlmPool {
  readonly workers: PoolWorkers;
  #state: PoolState;
  #updates = 0;
  #last: Promise<unknown> = Promise.resolve();

  constructor(input: PoolInput) {
    this.#state = input.state ?? state.emptyPool(input, Date.now());
    this.workers = new PoolWorkers(this.#state.workers, this.#state.leaseSeconds);
    this.#show();
  }

  get state(): PoolState {
    return { ...this.#state, workers: this.workers.names };
  }

  /** Its history is long enough. */
  get long(): boolean {
    return this.#updates >= MOST_UPDATES || workflowInfo().continueAsNewSuggested;
  }

  /** Makes a change when those before it are done. */
  async change(name: PoolUpdate, payload: unknown): Promise<PoolReport> {
    this.#updates++;
    const doIt = this[name].bind(this) as (payload: unknown) => Promise<Omit<PoolReport, 'state'>>;
    const mine = this.#last.then(() => doIt(payload));
    this.#last = mine.catch(() => {}); // its caller hears of it
    const report = await mine;
    return { state: this.state, ...report };
  }

  async add({ server, labels, seeded }: AddServer) {
    const facts = await probed(server);
    this.#refuseUnlike({ server, facts, labels });
    const member: PoolMember = { server, labels, state: 'active', why: null, loading: null, facts, seeded };
    return this.#changedTo(state.withMember(this.#state, member));
  }

  async remove({ url }: RemoveServer) {
    this.#known(url);
    return this.#changedTo(state.withoutMember(this.#state, url));
  }

  async drain({ url, drainSeconds }: DrainServer) {
    this.#known(url);
    const report = await this.#changedTo(
      state.changed(this.#state, [url], (member) => state.draining(member, 'drained')),
    );
    return { ...report, drained: await this.workers.settled([url], drainSeconds) };
  }

  async label({ url, labels }: LabelServer) {
    this.#refuseUnlike({ ...this.#known(url), labels });
    return this.#changedTo(state.changed(this.#state, [url], (member) => ({ ...member, labels })));
  }

  async floor({ version }: RaiseFloor) {
    if (version < this.#state.floor) {
      throw refused(`version: the floor is ${this.#state.floor}, and is only raised`);
    }
    const newest = versionOf(this.#state);
    if (newest !== undefined && version > newest) {
      throw refused(`version: the pool samples with ${newest}, which would end what begins as well`);
    }
    return this.#changedTo(state.withFloor(this.#state, version));
  }

  swap(swap: SwapWeights) {
    const newest = versionOf(this.#state, swap.label);
    if (newest !== undefined && swap.version < newest) {
      throw refused(`version: "${swap.label}" samples with ${newest}, and versions only grow`);
    }
    return swap.mode === 'blueGreen' ? this.#replace(swap) : this.#load(swap);
  }

  /** Other servers take the place of the old ones, in one step. */
  async #replace({ version, servers, label, drainSeconds }: BlueGreen) {
    const joining: PoolMember[] = [];
    const failed: Failed[] = [];
    const unreachable: string[] = [];
    const looked = servers.map(async (given) => {
      const server: LlmServer = { ...given, policyVersion: version };
      try {
        const facts = await probed(server);
        this.#refuseUnlike({ server, facts, labels: [label] }, version);
        const { labels, seeded } = this.#find(server.url) ?? { labels: [label], seeded: false };
        joining.push({ server, labels, state: 'active', why: null, loading: null, facts, seeded });
      } catch (error) {
        failed.push({ url: server.url, why: messageOf(error) });
        if (error instanceof ApplicationFailure && error.type === 'LlmUnreachable')
          unreachable.push(server.url);
      }
    });
    await Promise.all(looked);
    if (joining.length === 0) {
      const why = `none of the servers can take over: ${failed.map(({ url, why }) => `${url}: ${why}`)}`;
      // Where none is up yet, the same may be asked again.
      const type = unreachable.length === servers.length ? 'LlmUnreachable' : 'InvalidRequest';
      throw ApplicationFailure.nonRetryable(why, type);
    }
    const coming = joining.map(({ server }) => server.url);
    const old = state
      .labelled(this.#state, label)
      .map(({ server }) => server.url)
      .filter((url) => !coming.includes(url));
    const why = `replaced by version ${version}`;
    let next = state.changed(this.#state, old, (member) => state.draining(member, why));
    for (const member of joining) next = state.withMember(next, member);
    const { silent } = await this.#changedTo(next);
    const drained = await this.workers.settled(old, drainSeconds);
    for (const url of old) this.#state = state.withoutMember(this.#state, url);
    await this.#changedTo(this.#state);
    return { failed, silent, drained };
  }

  /** Each server loads the weights; in between, none of them is in use, unless they are loaded in flight. */
  async #load({ mode, version, folder, label, drainSeconds }: InPlace) {
    const members = state
      .labelled(this.#state, label)
      // One that a person drained stays so; one that is out may be well again with these.
      .filter(({ state: how }) => how !== 'draining')
      .filter((member) => member.state === 'out' || member.server.policyVersion !== version);
    if (members.length === 0)
      throw refused(`label: no server of "${label}" has other weights than ${version}`);
    const unable = members.filter(
      ({ facts }) => !facts.control || (mode === 'inFlight' && !facts.tellsVersions),
    );
    if (unable.length > 0) {
      const what = mode === 'inFlight' ? 'load weights and tell the version of each token' : 'load weights';
      throw refused(
        `mode: ${unable.map(({ server }) => server.url).join(', ')} cannot ${what}; use blueGreen`,
      );
    }
    const urls = members.map(({ server }) => server.url);
    const inFlight = mode === 'inFlight';
    const before = state.changed(this.#state, urls, (member) =>
      inFlight
        ? { ...member, loading: version }
        : state.draining(member, `version ${version} is being loaded`),
    );
    const { silent } = await this.#changedTo(before);
    const drained = mode !== 'drain' || (await this.workers.settled(urls, drainSeconds));
    const failed: Failed[] = [];
    await Promise.all(
      members.map(async ({ server }) => {
        try {
          await servers.loadWeights({ server, folder, version, pause: inFlight ? 'keep' : 'abort' });
        } catch (error) {
          failed.push({ url: server.url, why: reasonOf(error).message });
        }
      }),
    );
    const after = state.changed(this.#state, urls, (member) => {
      const failure = failed.find(({ url }) => url === member.server.url);
      return failure
        ? state.out(member, `version ${version}: ${failure.why}`)
        : state.serving(member, version);
    });
    const report = await this.#changedTo(after);
    return { failed, silent: [...silent, ...report.silent], drained };
  }

  /** Takes a new state, and returns when no run worker acts on an older one. */
  async #changedTo(next: PoolState): Promise<Omit<PoolReport, 'state'>> {
    this.#state = next;
    this.#show();
    return { failed: [], silent: await this.workers.barrier(next.epoch), drained: true };
  }

  #find(url: string): PoolMember | undefined {
    return this.#state.members.find(({ server }) => server.url === url);
  }

  #known(url: string): PoolMember {
    const member = this.#find(url);
    if (member) return member;
    const names = this.#state.members.map(({ server }) => server.url).join(', ');
    throw refused(`url: no server of the pool is at ${url}; there are: ${names || 'none'}`);
  }

  #refuseUnlike(
    server: { server: LlmServer; facts: ModelFacts; labels: readonly string[] },
    version?: number,
  ): void {
    const found = state.differences(this.#state, server, version);
    if (found.length === 0) return;
    throw ApplicationFailure.nonRetryable(`${server.server.url}: ${found.join('; ')}`, 'LlmUnsuitable');
  }

  /** The pool in Markdown, for the Temporal UI. */
  #show(): void {
    const lines = this.#state.members.map(
      ({ server, labels, state: how, why }) =>
        `${server.url} · ${labels.join(', ')} · version ${server.policyVersion} · **${how}**${why ? `: ${why}` : ''}`,
    );
    setCurrentDetails([`${lines.length} servers, floor ${this.#state.floor}`, ...lines].join('  \n'));
  }
}

function refused(message: string): ApplicationFailure {
  return ApplicationFailure.nonRetryable(message, 'InvalidRequest');
}
