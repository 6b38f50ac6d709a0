import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { FastifyBaseLogger } from 'fastify';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { grpcErrorIn } from '../../client/grpc-error.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { visibilityQuery } from '../../contracts/filter.ts';
import { POLICY_LABEL } from '../../contracts/pool.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import type { Task } from '../../contracts/task.ts';
import type { Tenant } from '../../contracts/tenant.ts';
import type { Gateway, TaskPlace } from '../gateway.ts';
import { HttpProblem } from '../problems.ts';
import { type AnswerParts, answerOf, type ProcessAnswer } from './answer.ts';
import { PROCESS_BATCH, type ProcessRequest, rolloutIdOf, rolloutOf } from './request.ts';
import { ProcessSwitch } from './switch.ts';

/** Where a call has what the task is made of. */
const IN_INSTANCE: TaskPlace = { handler: '/instance/data_source', data: '/instance' };
/** One wait for a record; a call waits as many times as it needs. */
const WAIT_MS = 30_000;
/** Before Temporal is asked again that did not answer. */
const RETRY_MS = 1000;
/** For so long the pool is not asked again whether it has servers: calls come by the hundred. */
const SERVERS_KNOWN_MS = 1000;

/** Jobs as ProRL Agent's server has them, each a rollout; what the routes of its API do. */
export class ProcessJobs {
  readonly #gateway: Gateway;
  readonly #log: FastifyBaseLogger;
  readonly #switch: ProcessSwitch;
  /** Rollouts that calls here wait for: one just begun is in no list yet. */
  readonly #waitedFor = new Set<string>();
  #haveServersUntil = 0;

  constructor(gateway: Gateway, log: FastifyBaseLogger) {
    this.#gateway = gateway;
    this.#log = log;
    this.#switch = new ProcessSwitch(gateway.config.derived.storeFolder);
  }

  /** @throws HttpProblem 400 if it runs */
  async start(): Promise<void> {
    if ((await this.#switch.state()).running) throw new HttpProblem(400, 'Server is already running');
    await this.#switch.change({ running: true });
  }

  /** Ends every job. @throws HttpProblem 503 if it is stopped */
  async stop(): Promise<void> {
    await this.mustRun();
    await this.#switch.change({ running: false });
    const { client } = this.#gateway;
    const rolloutIds = [...this.#waitedFor];
    if (rolloutIds.length > 0) await client.cancelMany({ rolloutIds }, 'shutdown');
    await client.cancelMany({ batchId: PROCESS_BATCH }, 'shutdown');
  }

  /** @throws HttpProblem 503 if it is stopped */
  async mustRun(): Promise<void> {
    if ((await this.#switch.state()).running) return;
    throw new HttpProblem(503, 'Server is not running. Please start the server first.');
  }

  /** How many jobs are where, as lists have it. */
  async counts() {
    const count = async (stage: string) => {
      const query = `${visibilityQuery({ batchId: PROCESS_BATCH, stage })} AND ExecutionStatus = 'Running'`;
      return (await this.#gateway.client.temporal.workflow.count(query)).count;
    };
    const [queued, run, paused, evaluate] = await Promise.all(
      ['queued', 'run', 'paused', 'evaluate'].map(count),
    );
    const counts = {
      // A rollout says no more of these two than that it has not begun to run.
      init_queue: queued as number,
      active_init: 0,
      run_queue: paused as number,
      active_run: run as number,
      eval_queue: 0,
      active_eval: evaluate as number,
    };
    return { ...counts, total: Object.values(counts).reduce((sum, each) => sum + each) };
  }

  /** Takes an LLM server in, for policy rollouts. @throws RolloutError as PoolClient.add */
  async addServer(address: string): Promise<void> {
    const { policyVersion } = await this.#switch.state();
    const { gateway: settings } = this.#gateway.config;
    await this.#gateway.client.pool.add({
      server: { ...settings.addedServers, url: address, policyVersion },
    });
    this.#haveServersUntil = 0;
  }

  /** From then on no request begins on any of them; what is added after has the next version of the weights. */
  async clearServers(): Promise<void> {
    const { policyVersion } = await this.#switch.state();
    const servers = await this.#policyServers();
    for (const { server } of servers) await this.#gateway.client.pool.remove(server.url);
    if (servers.length > 0) await this.#switch.change({ policyVersion: policyVersion + 1 });
    this.#haveServersUntil = 0;
  }

  /** Ends a job. @throws HttpProblem 404, 503 if it is stopped */
  async cancel(jobId: string): Promise<void> {
    await this.mustRun();
    await this.#gateway.cancel(rolloutIdOf(jobId), 'user');
  }

  /**
   * Begins the rollout of a job, or finds it, and answers when it has ended. A caller that goes leaves it running, to
   * ask for it again; without a `job_id` nobody could, and it is ended.
   * @throws HttpProblem 409, 503; RolloutError InvalidRequest, InvalidTask, UnknownHandler
   */
  async process(
    request: ProcessRequest,
    tenant: Tenant | undefined,
    gone: AbortSignal,
  ): Promise<ProcessAnswer | undefined> {
    await this.mustRun();
    await this.#mustHaveServers();
    const { config } = this.#gateway;
    const jobId = request.job_id ?? undefined;
    const rolloutId = rolloutIdOf(jobId ?? randomUUID());
    const asked = rolloutOf(request, config.gateway.dataSources, config.rollout);
    await this.#gateway.submit(rolloutId, asked, tenant, IN_INSTANCE);
    this.#waitedFor.add(rolloutId);
    try {
      const record = await this.#record(rolloutId, gone);
      if (record) return answerOf(await this.#partsOf(request.instance, asked.task, record));
      if (jobId === undefined) await this.#gateway.cancel(rolloutId, 'superseded');
      return undefined;
    } finally {
      this.#waitedFor.delete(rolloutId);
    }
  }

  /** The terminal record, or undefined if the caller has gone. What Temporal does not answer meanwhile is waited out. */
  async #record(rolloutId: string, gone: AbortSignal): Promise<RolloutResult | undefined> {
    const left = new Promise<'gone'>((resolve) => {
      if (gone.aborted) resolve('gone');
      gone.addEventListener('abort', () => resolve('gone'), { once: true });
    });
    while (!gone.aborted) {
      const asked = this.#gateway.record(rolloutId, WAIT_MS, gone).catch(async (error: unknown) => {
        if (!grpcErrorIn(error) || error instanceof WorkflowNotFoundError) throw error;
        this.#log.warn({ err: error, rolloutId }, 'Temporal does not answer; asked again');
        await delay(RETRY_MS);
      });
      const answer = await Promise.race([asked, left]);
      if (answer !== undefined && answer !== 'gone') return answer;
    }
    return undefined;
  }

  async #partsOf(instance: AnswerParts['instance'], task: Task, record: RolloutResult): Promise<AnswerParts> {
    const tools = this.#gateway.toolsOf(task);
    try {
      const sequences = record.trajectory
        ? await readTrajectory(record.trajectory, this.#gateway.store.archive)
        : [];
      const outcome = await this.#gateway.outcomeOf(record);
      return { instance, record, sequence: sequences.at(-1), outcome, tools };
    } catch (error) {
      if (!(error instanceof RolloutError)) throw error;
      this.#log.error({ err: error, rolloutId: record.rolloutId }, 'the store could not be read');
      return { instance, record, sequence: undefined, outcome: {}, tools, unread: messageOf(error) };
    }
  }

  async #mustHaveServers(): Promise<void> {
    if (Date.now() < this.#haveServersUntil) return;
    if ((await this.#policyServers()).length === 0) {
      throw new HttpProblem(
        503,
        'No LLM server addresses configured. Please add at least one LLM server address.',
      );
    }
    this.#haveServersUntil = Date.now() + SERVERS_KNOWN_MS;
  }

  async #policyServers() {
    const { members } = await this.#gateway.client.pool.state();
    return members.filter(({ labels, state }) => labels.includes(POLICY_LABEL) && state === 'active');
  }
}
