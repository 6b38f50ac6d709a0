import type { LlmDialect } from '../../activities/llm/dialect.ts';
import { makeDialect } from '../../activities/llm/dialects.ts';
import { BATCH_STATUS_QUERY, BATCH_WORKFLOW, type BatchStatus } from '../../contracts/batch.ts';
import { messageOf } from '../../contracts/failures.ts';
import { visibilityQuery } from '../../contracts/filter.ts';
import type { PoolMember } from '../../contracts/pool.ts';
import {
  controlQueue,
  evalQueue,
  initQueue,
  POOL_QUEUE,
  RECORDS_QUEUE,
  runQueue,
  WORKFLOW_QUEUE,
} from '../../contracts/queues.ts';
import { hostStates } from '../hosts.ts';
import { isDeadline, type RolloutClient } from '../rollout-client.ts';
import {
  type BatchSummary,
  MINUTES,
  type Part,
  type PoolSummary,
  type QueueState,
  type RolloutCounts,
  type ServerState,
  type TopState,
} from './state.ts';

/** Milliseconds that each question may take. */
const WITHIN_MS = 3_000;
/** Open batches that are asked how they stand. */
const MOST_BATCHES = 10;
/** A long poll lasts a minute: who has not asked for two has gone. */
const POLLER_GONE_MS = 120_000;
/** Kinds of task queues, as Temporal numbers them. */
const WORKFLOW_TASKS = 1;
const ACTIVITY_TASKS = 2;

/** Looks at the parts of a service, each for itself. */
export class Lookout {
  readonly #client: RolloutClient;
  readonly #address: string;
  readonly #dialects = new Map<string, LlmDialect>();

  constructor(client: RolloutClient, address: string) {
    this.#client = client;
    this.#address = address;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#dialects.values()].map((dialect) => dialect.close()));
  }

  /** How all of it stands now. Never rejects. */
  async look(): Promise<TopState> {
    const names = this.#asked(() => this.#client.hosts());
    const [rollouts, queues, hosts, pool, batches] = await Promise.all([
      this.#asked(() => this.#rollouts()),
      names.then((known) => this.#asked(() => this.#queues('value' in known ? known.value : []))),
      names.then((known) =>
        'value' in known ? this.#asked(() => hostStates(this.#client.temporal, known.value)) : known,
      ),
      this.#asked(() => this.#pool()),
      this.#asked(() => this.#batches()),
    ]);
    const at = new Date().toISOString();
    return { at, temporal: this.#address, rollouts, queues, hosts, pool, batches };
  }

  async #asked<T>(question: () => Promise<T>): Promise<Part<T>> {
    try {
      const { connection } = this.#client.temporal;
      return { value: await connection.withDeadline(Date.now() + WITHIN_MS, question) };
    } catch (error) {
      return { problem: isDeadline(error) ? `nothing within ${WITHIN_MS / 1000} s` : messageOf(error) };
    }
  }

  async #rollouts(): Promise<RolloutCounts> {
    const count = async (filter: Parameters<typeof visibilityQuery>[0], more: string) =>
      (await this.#client.temporal.workflow.count(`${visibilityQuery(filter)} AND ${more}`)).count;
    const since = (minutes: number) =>
      `CloseTime > '${new Date(Date.now() - minutes * 60_000).toISOString()}'`;
    const inStage = (stage: string) => count({ stage }, "ExecutionStatus = 'Running'");
    const withOutcome = (outcome: string) => count({ outcome }, since(MINUTES));
    const [stages, outcomes, { all, endedInLastMinute }] = await Promise.all([
      together({
        queued: inStage('queued'),
        run: inStage('run'),
        paused: inStage('paused'),
        evaluate: inStage('evaluate'),
      }),
      together({
        completed: withOutcome('completed'),
        truncated: withOutcome('truncated'),
        cancelled: withOutcome('cancelled'),
        failed: withOutcome('failed'),
      }),
      together({ all: count({}, since(MINUTES)), endedInLastMinute: count({}, since(1)) }),
    ]);
    const known = Object.values(outcomes).reduce((sum, some) => sum + some, 0);
    // Counted by one question each: one that ends meanwhile may be in some alone.
    return { stages, ended: { ...outcomes, other: Math.max(0, all - known) }, endedInLastMinute };
  }

  #queues(hosts: readonly string[]): Promise<QueueState[]> {
    return Promise.all([
      this.#queue(WORKFLOW_QUEUE, WORKFLOW_TASKS),
      ...[initQueue(), ...hosts.map(runQueue), evalQueue(), RECORDS_QUEUE, POOL_QUEUE].map((name) =>
        this.#queue(name, ACTIVITY_TASKS),
      ),
      ...hosts.map((host) => this.#queue(controlQueue(host), ACTIVITY_TASKS)),
    ]);
  }

  async #queue(name: string, taskQueueType: number): Promise<QueueState> {
    const { temporal } = this.#client;
    const { namespace } = temporal.options;
    const asked = { namespace, taskQueue: { name }, taskQueueType, reportStats: true };
    const { pollers, stats } = await temporal.workflowService.describeTaskQueue(asked);
    const gone = Date.now() - POLLER_GONE_MS;
    return {
      queue: name,
      waiting: Number(stats?.approximateBacklogCount ?? 0),
      oldestSeconds: Number(stats?.approximateBacklogAge?.seconds ?? 0),
      inPerSecond: stats?.tasksAddRate ?? 0,
      outPerSecond: stats?.tasksDispatchRate ?? 0,
      workers: pollers.filter(({ lastAccessTime }) => Number(lastAccessTime?.seconds ?? 0) * 1000 > gone)
        .length,
    };
  }

  async #pool(): Promise<PoolSummary> {
    const { pool, floor, workers, members } = await this.#client.pool.state();
    const servers = await Promise.all(members.map((member) => this.#server(member)));
    return { pool, floor, runWorkers: workers.length, servers };
  }

  async #server({ server, labels, state, why }: PoolMember): Promise<ServerState> {
    const { url, dialect: kind, policyVersion: version } = server;
    const dialect = this.#dialects.get(url) ?? makeDialect(kind, url);
    this.#dialects.set(url, dialect);
    const load = await this.#asked(() => dialect.load(AbortSignal.timeout(WITHIN_MS)));
    return { url, dialect: kind, labels, version, state, why, load };
  }

  async #batches(): Promise<BatchSummary[]> {
    const { workflow } = this.#client.temporal;
    const query = `WorkflowType = '${BATCH_WORKFLOW}' AND ExecutionStatus = 'Running'`;
    const ids: string[] = [];
    for await (const { workflowId } of workflow.list({ query })) {
      if (ids.push(workflowId) === MOST_BATCHES) break;
    }
    return Promise.all(
      ids.map(async (workflowId) => {
        const status = await this.#asked(async () => {
          const { admitted, wanted, counts } = await workflow
            .getHandle(workflowId)
            .query<BatchStatus>(BATCH_STATUS_QUERY);
          const dropped = Object.values(counts.dropped).reduce((sum, some) => sum + some, 0);
          const { open, rewardMean } = counts;
          return { admitted: admitted.length, wanted, open, dropped, rewardMean };
        });
        return { batchId: workflowId.replace(/^batch:/, ''), status };
      }),
    );
  }
}

async function together<K extends string>(counts: Record<K, Promise<number>>): Promise<Record<K, number>> {
  const entries = Object.entries<Promise<number>>(counts).map(async ([name, count]) => [name, await count]);
  return Object.fromEntries(await Promise.all(entries)) as Record<K, number>;
}
