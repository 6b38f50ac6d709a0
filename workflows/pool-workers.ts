import {
  CancellationScope,
  condition,
  isCancellation,
  log,
  proxyActivities,
  sleep,
} from '@temporalio/workflow';
import type { PoolWorkerActivities } from '../contracts/pool.ts';
import { controlQueue } from '../contracts/queues.ts';

/**
 * The run workers that hold a lease on a pool's state. A worker that was told of it may act on it for so many
 * seconds from the moment before it asked; so whoever waits that long after a change, or until every worker has
 * acknowledged it, knows that nobody acts on what was before.
 */
export class PoolWorkers {
  readonly #leaseSeconds: number;
  /** Leases of workers that are no longer known and may not have run out. */
  #unknown = 0;
  #names: readonly string[];

  constructor(names: readonly string[], leaseSeconds: number) {
    this.#names = names;
    this.#leaseSeconds = leaseSeconds;
  }

  /** Only these are given a lease when they ask. */
  get names(): readonly string[] {
    return this.#names;
  }

  /** No lease can be out that nobody knows of. */
  get accounted(): boolean {
    return this.#unknown === 0;
  }

  join(worker: string): void {
    if (!this.#names.includes(worker)) this.#names = [...this.#names, worker];
  }

  /** It has given its lease up. */
  leave(worker: string): void {
    this.#names = this.#names.filter((name) => name !== worker);
  }

  /**
   * To be called after the state has changed: returns when no worker acts on an older one any more. Workers that do
   * not answer are forgotten; one that lives asks again. @returns those
   */
  async barrier(epoch: number): Promise<string[]> {
    const workers = this.#names;
    const answered = new Set<string>();
    const told = workers.map(async (worker) => {
      await activitiesOf(worker, this.#leaseSeconds).poolChanged({ epoch });
      answered.add(worker);
    });
    await this.#unlessExpired(async () => {
      await Promise.all(told);
      await condition(() => this.accounted);
    });
    for (const one of told)
      one.catch((error) => log.warn('a run worker did not answer', { error: String(error) }));
    const silent = workers.filter((worker) => !answered.has(worker));
    for (const worker of silent) this.#forget(worker);
    return silent;
  }

  /** Returns when no worker has a request under way on these servers; false if that took longer than it may. */
  async settled(urls: readonly string[], seconds: number): Promise<boolean> {
    if (urls.length === 0) return true;
    const told = this.#names.map((worker) => activitiesOf(worker, Math.max(1, seconds)).settled({ urls }));
    const ends = await Promise.allSettled(told);
    return ends.every(({ status }) => status === 'fulfilled');
  }

  /** It may have asked just before: what it was told then runs out in a lease's time from now. */
  #forget(worker: string): void {
    this.leave(worker);
    this.#unknown++;
    void sleep(this.#leaseSeconds * 1000).then(() => {
      this.#unknown--;
    });
  }

  /** Waits for `work`, or, if that fails or takes longer, until every lease from before has run out. */
  async #unlessExpired(work: () => Promise<void>): Promise<void> {
    const timer = new CancellationScope();
    const expired = timer.run(() => sleep(this.#leaseSeconds * 1000));
    const done = work().then(
      () => true,
      () => false,
    );
    const first = await Promise.race([done, expired.then(() => true)]);
    if (!first) await expired;
    timer.cancel();
    await expired.catch((error: unknown) => {
      if (!isCancellation(error)) throw error; // all have answered in time
    });
  }
}

function activitiesOf(worker: string, seconds: number): PoolWorkerActivities {
  return proxyActivities<PoolWorkerActivities>({
    taskQueue: controlQueue(worker),
    scheduleToCloseTimeout: `${seconds}s`,
    // The next lease tells it as well: to be heard late is of no use.
    retry: { maximumAttempts: 1 },
    summary: worker,
  });
}
