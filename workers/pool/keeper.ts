import { setTimeout as delay } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import type { PoolView } from '../../activities/llm/pool-view.ts';
import { messageOf } from '../../contracts/failures.ts';
import {
  JOIN_SIGNAL,
  LEAVE_SIGNAL,
  POOL_STATE_QUERY,
  type PoolInput,
  type PoolState,
  type PoolWorkerActivities,
  poolWorkflowId,
  type WorkerSignal,
} from '../../contracts/pool.ts';
import { startPool } from './start.ts';

/** Asked so often within a lease's time, so that a few answers may fail. */
const ASKS_PER_LEASE = 5;
/** Milliseconds after which a question that failed is asked again. */
const AGAIN_MS = 500;

/** Milliseconds that a worker that goes takes to say so. */
const LEAVE_MS = 3_000;

export interface PoolKeeperOptions {
  readonly client: Client;
  readonly input: PoolInput;
  /** Name of this process's control queue. */
  readonly worker: string;
  readonly view: PoolView;
  /** Told when the pool does not answer, once until it does again. */
  warn(problem: string): void;
}

/**
 * Keeps a run worker's view of its pool: asks the pool's workflow at regular intervals by a query, which leaves
 * nothing in its history, and at once when it is told of a change.
 */
export class PoolKeeper {
  readonly activities: PoolWorkerActivities;
  readonly #options: PoolKeeperOptions;
  readonly #closing = new AbortController();
  #keeping: Promise<void> = Promise.resolve();
  #answers = true;

  constructor(options: PoolKeeperOptions) {
    this.#options = options;
    const { view } = options;
    this.activities = {
      poolChanged: async ({ epoch }) => {
        const { cancellationSignal: signal } = Context.current();
        while ((view.lease.state?.epoch ?? 0) < epoch) {
          if (!(await this.#ask())) await delay(AGAIN_MS, undefined, { signal });
        }
      },
      settled: ({ urls }) => view.settled(urls, Context.current().cancellationSignal),
    };
  }

  start(): void {
    this.#keeping = this.#keep();
  }

  /** Gives the lease up and tells the pool, so that no change waits for this worker. */
  async stop(): Promise<void> {
    this.#closing.abort();
    await this.#keeping;
    this.#options.view.lease.giveUp();
    const leave: WorkerSignal = { worker: this.#options.worker };
    const say = () => this.#pool.signal(LEAVE_SIGNAL, leave);
    // Not heard, the pool notices by itself.
    await this.#options.client
      .withDeadline(Date.now() + LEAVE_MS, say)
      .catch((error) => this.#options.warn(messageOf(error)));
  }

  async #keep(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const answered = await this.#ask();
      const seconds = this.#options.view.lease.state?.leaseSeconds ?? 1;
      const ms = answered ? (seconds * 1000) / ASKS_PER_LEASE : AGAIN_MS;
      await delay(ms, undefined, { signal }).catch(() => {}); // told to stop: the loop ends
    }
  }

  /** @returns false if there was no answer that gives a lease */
  async #ask(): Promise<boolean> {
    const { view, worker, input, client, warn } = this.#options;
    try {
      await this.#query();
      if (!view.lease.known) {
        const join: WorkerSignal = { worker };
        await this.#pool.signal(JOIN_SIGNAL, join);
        await this.#query();
      }
      this.#answers = true;
      return view.lease.known;
    } catch (error) {
      if (error instanceof WorkflowNotFoundError)
        await startPool(client, input).catch(() => {}); // asked again
      else if (this.#answers && !this.#closing.signal.aborted) warn(messageOf(error));
      this.#answers = error instanceof WorkflowNotFoundError;
      return false;
    }
  }

  async #query(): Promise<void> {
    const { client, view, input } = this.#options;
    const askedAt = performance.now();
    const state = await client.withAbortSignal(this.#closing.signal, () =>
      client.withDeadline(Date.now() + input.leaseSeconds * 1000, () =>
        this.#pool.query<PoolState>(POOL_STATE_QUERY),
      ),
    );
    view.take(state, askedAt);
  }

  get #pool() {
    const { client, input } = this.#options;
    return client.workflow.getHandle(poolWorkflowId(input.pool));
  }
}
