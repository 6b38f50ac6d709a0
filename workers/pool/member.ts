import { Client } from '@temporalio/client';
import { Runtime, Worker, type WorkerOptions } from '@temporalio/worker';
import { timeoutsOf } from '../../activities/llm/http.ts';
import { PoolView } from '../../activities/llm/pool-view.ts';
import { makePoolActivities } from '../../activities/pool.ts';
import type { Config } from '../../config/load.ts';
import type { PoolState } from '../../contracts/pool.ts';
import { controlQueue, POOL_QUEUE } from '../../contracts/queues.ts';
import { PoolKeeper } from './keeper.ts';
import { workerName } from './worker-name.ts';

/** The part that a process which samples has in its pool. */
export interface PoolPart {
  readonly view: PoolView;
  /** Of its control queue, and of what is done to the servers. */
  readonly workers: readonly Worker[];
  /** To be called when the workers have stopped. */
  leave(): Promise<void>;
}

/**
 * Joins the pool of a configuration, with a name of its own for as long as this process lives. `changed` is told of every
 * state of it that is acted on.
 */
export async function joinPool(
  { llm, derived }: Config,
  shared: Omit<WorkerOptions, 'taskQueue'> & Required<Pick<WorkerOptions, 'connection'>>,
  changed: (state: PoolState) => void = () => {},
): Promise<PoolPart> {
  const { connection, namespace, dataConverter } = shared;
  const worker = workerName(derived.host);
  const view = new PoolView(worker, {
    timeouts: timeoutsOf(llm),
    changed,
  });
  const keeper = new PoolKeeper({
    client: new Client({
      connection,
      ...(namespace === undefined ? {} : { namespace }),
      ...(dataConverter === undefined ? {} : { dataConverter }),
    }),
    input: { pool: llm.pool, leaseSeconds: llm.leaseSeconds },
    worker,
    view,
    warn: (problem) => Runtime.instance().logger.warn('the pool of LLM servers does not answer', { problem }),
  });
  const quick = { ...shared, maxConcurrentActivityTaskPolls: 1 };
  const workers = [
    await Worker.create({ ...quick, taskQueue: controlQueue(worker), activities: keeper.activities }),
    await Worker.create({ ...quick, taskQueue: POOL_QUEUE, activities: makePoolActivities() }),
  ];
  keeper.start();
  return {
    view,
    workers,
    leave: async () => {
      await keeper.stop();
      await view.close();
    },
  };
}
