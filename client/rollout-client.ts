import {
  ApplicationFailure,
  Client,
  type ClientInterceptors,
  Connection,
  isGrpcDeadlineError,
  WithStartWorkflowOperation,
  WorkflowFailedError,
  WorkflowIdConflictPolicy,
  WorkflowNotFoundError,
} from '@temporalio/client';
import type { Workflow } from '@temporalio/common';
import { closedRollout } from '../activities/closed-rollout.ts';
import { startRollout } from '../activities/start-rollout.ts';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/temporal-connection.ts';
import { BATCH_WORKFLOW, FLOOR_SIGNAL, type FloorSignal } from '../contracts/batch.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import { type RolloutFilter, visibilityQuery } from '../contracts/filter.ts';
import { POOL_WORKFLOW, type PoolReport, poolWorkflowId } from '../contracts/pool.ts';
import { problemsOf } from '../contracts/problems.ts';
import { WORKFLOW_QUEUE } from '../contracts/queues.ts';
import { type CancelReason, RolloutRequest, type RolloutRequestInput } from '../contracts/request.ts';
import { RolloutResult } from '../contracts/result.ts';
import { SEARCH_ATTRIBUTES as ATTRIBUTES } from '../contracts/search-attributes.ts';
import {
  CANCEL_MANY_UPDATE,
  CANCEL_SIGNAL,
  type CancelSignal,
  LEAVE_HOST_SIGNAL,
  type LeaveHostSignal,
  PAUSE,
  RESUME,
  type RolloutStatus,
  STATUS_QUERY,
} from '../contracts/signals.ts';
import {
  CANCEL_SWEEPER,
  HOST_WORKFLOW,
  Selection,
  type SweepInput,
  type SweepReport,
} from '../contracts/sweep.ts';
import { dataConverterOf } from '../temporal-config/encryption/data-converter.ts';
import { unreachable } from '../temporal-config/unreachable.ts';
import { type ListingPage, listingOf, listingPage, type RolloutListing } from './listing.ts';
import { PoolClient } from './pool.ts';

/** Temporal refuses payloads of 2 MB; the request also travels to every stage. */
const MOST_REQUEST_BYTES = 1024 ** 2;

/** Number of Temporal's enum TaskQueueType. */
const TASK_QUEUE_OF_WORKFLOWS = 1;
/** A waiting worker's question is answered after a minute at the latest. */
const POLLED_WITHIN_SECONDS = 90;
const NEVER = new AbortController().signal;

/**
 * Starts rollouts and asks after them. Every method needs nothing but the Temporal server; workers may be
 * elsewhere, or not there yet.
 */
export class RolloutClient {
  readonly temporal: Client;
  private readonly connection: Connection;
  private readonly pageUrl: string | undefined;

  /** The LLM servers that rollouts are sampled from. */
  readonly pool: PoolClient;

  private constructor(
    connection: Connection,
    namespace: string,
    config: Config,
    interceptors: ClientInterceptors = {},
  ) {
    const { pool, leaseSeconds } = config.llm;
    this.connection = connection;
    this.pageUrl = config.gateway.url;
    this.temporal = new Client({
      connection,
      namespace,
      dataConverter: dataConverterOf(config),
      interceptors,
    });
    this.pool = new PoolClient(this.temporal, { pool, leaseSeconds });
  }

  /**
   * `interceptors`: of calls to Temporal.
   * @throws an Error that says how to start a server, if none is known or the one that is does not answer.
   */
  static async connect(config: Config, interceptors?: ClientInterceptors): Promise<RolloutClient> {
    const temporal = temporalConnection(config);
    const { connectionOptions, namespace } = temporal;
    if (!temporal.chosen) {
      throw new RolloutError(
        'InvalidRequest',
        'no stack runs in this checkout: start one with "npm start", or set temporal.address',
      );
    }
    try {
      const connection = await Connection.connect(connectionOptions);
      return new RolloutClient(connection, namespace, config, interceptors);
    } catch (error) {
      throw unreachable(error, temporal);
    }
  }

  async close(): Promise<void> {
    await this.connection.close();
  }

  /**
   * Starts a rollout; it is durable when this returns. Idempotent by `rolloutId`: one that is known, open or
   * ended, is not started again.
   * @throws RolloutError InvalidRequest naming the field.
   */
  async start(
    input: RolloutRequestInput,
  ): Promise<{ rolloutId: string; request: RolloutRequest; isNew: boolean }> {
    const request = checkedRequest(input);
    const isNew = await startRollout(this.temporal, request, this.pageUrl);
    return { rolloutId: request.rolloutId, request, isNew };
  }

  /** The digest that a rollout was started with, if it was with one. */
  async digestOf(rolloutId: string): Promise<string | undefined> {
    return (await this.temporal.workflow.getHandle(rolloutId).describe()).memo?.digest as string | undefined;
  }

  /** Starts a rollout and waits for its terminal record. */
  async execute(input: RolloutRequestInput): Promise<RolloutResult> {
    const { rolloutId } = await this.start(input);
    return this.result(rolloutId);
  }

  /**
   * Waits for the terminal record of a rollout, whatever its outcome. One that was closed from outside
   * (terminated, for example) has none: it is told as failed, `Terminated`.
   * @throws if there is no such rollout, or Temporal does not answer.
   */
  async result(rolloutId: string): Promise<RolloutResult> {
    try {
      return RolloutResult.parse(await this.temporal.workflow.getHandle(rolloutId).result());
    } catch (error) {
      if (!(error instanceof WorkflowFailedError)) throw error;
      const record = recordInFailure(error);
      if (record) return record;
      const message = messageOf(error.cause ?? error);
      return (await closedRollout(this.temporal, rolloutId, message)).result;
    }
  }

  /**
   * The terminal record if it is there within so many milliseconds and before `gone` is aborted, else undefined.
   * @throws WorkflowNotFoundError, or what Temporal throws
   */
  async resultWithin(
    rolloutId: string,
    ms: number,
    gone: AbortSignal = NEVER,
  ): Promise<RolloutResult | undefined> {
    if (await this.isOpen(rolloutId)) {
      if (ms <= 0) return undefined;
      try {
        // One that nobody waits for any more would keep one of the server's long polls.
        return await this.connection.withAbortSignal(gone, () =>
          this.connection.withDeadline(Date.now() + ms, () => this.result(rolloutId)),
        );
      } catch (error) {
        if (gone.aborted || isDeadline(error)) return undefined;
        throw error;
      }
    }
    return this.result(rolloutId);
  }

  /** The stage that lists show; null if there is none yet. */
  async stageOf(rolloutId: string): Promise<string | null> {
    const { typedSearchAttributes } = await this.temporal.workflow.getHandle(rolloutId).describe();
    return typedSearchAttributes.get(ATTRIBUTES.stage) ?? null;
  }

  /**
   * Asks a rollout to end; returns when Temporal has the request. Harmless on one that has ended: false.
   * @throws if there is no such rollout.
   */
  cancel(rolloutId: string, reason: CancelReason = 'user'): Promise<boolean> {
    return this.signal<CancelSignal>(rolloutId, CANCEL_SIGNAL, { reason });
  }

  /**
   * Makes a rollout leave its host, if that is this one; returns when Temporal has the request. Harmless on one that
   * is elsewhere, and on one that has ended: false.
   * @throws if there is no such rollout.
   */
  leaveHost(rolloutId: string, host: string): Promise<boolean> {
    return this.signal<LeaveHostSignal>(rolloutId, LEAVE_HOST_SIGNAL, { host });
  }

  private async signal<S>(rolloutId: string, name: string, signal: S): Promise<boolean> {
    try {
      await this.temporal.workflow.getHandle(rolloutId).signal(name, signal);
      return true;
    } catch (error) {
      if (error instanceof WorkflowNotFoundError && !(await this.isOpen(rolloutId))) return false;
      throw error;
    }
  }

  /**
   * Makes a rollout give back its slot and its LLM request, and keep its sandbox; returns when that is so.
   * Where it stands then; null if it has ended. Pausing a paused one changes nothing.
   * @throws if there is no such rollout, or no workflow worker answers.
   */
  pause(rolloutId: string): Promise<RolloutStatus | null> {
    return this.update(rolloutId, PAUSE);
  }

  /** Lets a paused rollout go on. Where it stands then; null if it has ended. */
  resume(rolloutId: string): Promise<RolloutStatus | null> {
    return this.update(rolloutId, RESUME);
  }

  private async update(rolloutId: string, name: string): Promise<RolloutStatus | null> {
    try {
      return await this.temporal.workflow.getHandle(rolloutId).executeUpdate<RolloutStatus, []>(name);
    } catch (error) {
      if (error instanceof WorkflowNotFoundError && !(await this.isOpen(rolloutId))) return null;
      throw error;
    }
  }

  /**
   * Ends everything that is selected; returns when agents have been stopped and the rest has been told. Once a
   * workflow worker has taken it it goes on when this process dies; while none is up it waits here, and ends with us.
   * @throws RolloutError InvalidRequest naming the field.
   */
  async cancelMany(selection: Selection, reason: CancelReason = 'user'): Promise<SweepReport> {
    const parsed = Selection.safeParse(selection);
    if (!parsed.success) throw new RolloutError('InvalidRequest', problemsOf(parsed.error));
    const input: SweepInput = { selection: parsed.data, reason, hosts: await this.hosts() };
    return this.temporal.workflow.executeUpdateWithStart<Workflow, SweepReport, [SweepInput]>(
      CANCEL_MANY_UPDATE,
      {
        args: [input],
        startWorkflowOperation: new WithStartWorkflowOperation(CANCEL_SWEEPER, {
          workflowId: CANCEL_SWEEPER,
          taskQueue: WORKFLOW_QUEUE,
          workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
        }),
      },
    );
  }

  /**
   * Raises the pool's floor, by which nothing with an older token goes on, and ends what has one at once: what runs,
   * and what is paused. Batches are told, which take no older group any more. Where other pools share the namespace
   * paused rollouts and batches cannot be told from theirs: those end when they would go on, these keep to the floor that
   * was there when they began.
   */
  async raiseFloor(version: number, key?: string): Promise<{ pool: PoolReport; sweep: SweepReport }> {
    const pool = await this.pool.raiseFloor(version, key);
    const query = `WorkflowType = '${POOL_WORKFLOW}' AND ExecutionStatus = 'Running'`;
    for await (const { workflowId } of this.temporal.workflow.list({ query })) {
      if (workflowId !== poolWorkflowId(pool.state.pool)) {
        return { pool, sweep: { aborted: 0, signalled: 0, silentHosts: [] } };
      }
    }
    await this.tellBatches({ version });
    return { pool, sweep: await this.cancelMany({ belowVersion: version }, 'stale') };
  }

  /** One that is not listed yet asks for the floor itself when it begins. */
  private async tellBatches(floor: FloorSignal): Promise<void> {
    const query = `WorkflowType = '${BATCH_WORKFLOW}' AND ExecutionStatus = 'Running'`;
    for await (const { workflowId } of this.temporal.workflow.list({ query })) {
      try {
        await this.temporal.workflow.getHandle(workflowId).signal(FLOOR_SIGNAL, floor);
      } catch (error) {
        if (!(error instanceof WorkflowNotFoundError)) throw error; // it has ended meanwhile
      }
    }
  }

  /** Whether a workflow worker has asked for a task in the last minute and a half: one that waits asks each minute. */
  async hasWorkflowWorker(): Promise<boolean> {
    const { pollers } = await this.temporal.workflowService.describeTaskQueue({
      namespace: this.temporal.options.namespace,
      taskQueue: { name: WORKFLOW_QUEUE },
      taskQueueType: TASK_QUEUE_OF_WORKFLOWS,
    });
    const since = Date.now() / 1000 - POLLED_WITHIN_SECONDS;
    return (pollers ?? []).some(({ lastAccessTime }) => Number(lastAccessTime?.seconds ?? 0) > since);
  }

  /** Names of the sandbox hosts that are up. */
  async hosts(): Promise<string[]> {
    const query = `WorkflowType = '${HOST_WORKFLOW}' AND ExecutionStatus = 'Running'`;
    const hosts: string[] = [];
    for await (const { workflowId } of this.temporal.workflow.list({ query })) {
      hosts.push(workflowId.replace(/^host:/, ''));
    }
    return hosts;
  }

  /** Whether Temporal knows a workflow, open or ended. */
  async isKnown(workflowId: string): Promise<boolean> {
    try {
      await this.temporal.workflow.getHandle(workflowId).describe();
      return true;
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return false;
      throw error;
    }
  }

  /** False once a rollout's workflow is closed. */
  async isOpen(rolloutId: string): Promise<boolean> {
    return (await this.temporal.workflow.getHandle(rolloutId).describe()).status.name === 'RUNNING';
  }

  /** Where a rollout is now; needs a workflow worker. */
  async status(rolloutId: string): Promise<RolloutStatus> {
    return this.temporal.workflow.getHandle(rolloutId).query<RolloutStatus>(STATUS_QUERY);
  }

  /** Rollouts that match, newest first. Eventually consistent: one just started may be missing. */
  async *list(filter: RolloutFilter = {}): AsyncIterable<RolloutListing> {
    for await (const execution of this.temporal.workflow.list({ query: visibilityQuery(filter) })) {
      yield listingOf(execution);
    }
  }

  /** As {@link list}, page by page. @throws RolloutError InvalidRequest if `after` is none that was given */
  listPage(filter: RolloutFilter, page: { size: number; after?: string }): Promise<ListingPage> {
    return listingPage(this.temporal, filter, page);
  }
}

function checkedRequest(input: RolloutRequestInput): RolloutRequest {
  const parsed = RolloutRequest.safeParse(input);
  if (parsed.success) {
    const bytes = Buffer.byteLength(JSON.stringify(parsed.data));
    if (bytes <= MOST_REQUEST_BYTES) return parsed.data;
    throw new RolloutError(
      'InvalidRequest',
      `task.data: the request has ${bytes} bytes, at most ${MOST_REQUEST_BYTES} are taken`,
    );
  }
  throw new RolloutError('InvalidRequest', problemsOf(parsed.error));
}

/** The time that a call was given is over. */
export function isDeadline(error: unknown): boolean {
  if (isGrpcDeadlineError(error)) return true;
  return error instanceof Error && error.cause !== undefined && isDeadline(error.cause);
}

/** A failed rollout carries its record in the details of its failure. */
function recordInFailure(error: unknown): RolloutResult | undefined {
  if (!(error instanceof WorkflowFailedError) || !(error.cause instanceof ApplicationFailure))
    return undefined;
  const parsed = RolloutResult.safeParse(error.cause.details?.[0]);
  return parsed.success ? parsed.data : undefined;
}
