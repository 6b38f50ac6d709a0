import { createHash } from 'node:crypto';
import { WorkflowNotFoundError } from '@temporalio/client';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { stringify } from 'safe-stable-stringify';
import { GroupStore } from '../activities/groups/group-store.ts';
import { type HandlerRegistry, InvalidTaskData } from '../activities/handlers/registry.ts';
import type { TrajectoryStore } from '../activities/trajectory/store.ts';
import { GroupClient } from '../client/groups.ts';
import type { RolloutClient } from '../client/rollout-client.ts';
import type { Config } from '../config/load.ts';
import { RolloutError } from '../contracts/failures.ts';
import type { CancelReason, RolloutRequestInput } from '../contracts/request.ts';
import type { RolloutResult } from '../contracts/result.ts';
import type { Task } from '../contracts/task.ts';
import type { Tenant } from '../contracts/tenant.ts';
import type { ToolSpec } from '../contracts/tools.ts';
import { overConfigured } from './as-asked.ts';
import { HttpProblem } from './problems.ts';
import { Tenants } from './tenants.ts';

/** An app whose routes are typed by their schemas. */
export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;
/** A set of routes. */
export type Routes = (app: App, gateway: Gateway) => void;

/** JSON pointers to where a body has the name of a task's handler and the task's data. */
export interface TaskPlace {
  readonly handler: string;
  readonly data: string;
}

/** What the gateway is made of. */
export interface GatewayParts {
  readonly config: Config;
  readonly client: RolloutClient;
  readonly store: TrajectoryStore;
  readonly handlers: HandlerRegistry;
}

/** What routes do, apart from HTTP: the client's calls, and the store's records beyond Temporal's retention. */
export class Gateway {
  readonly client: RolloutClient;
  readonly config: Config;
  readonly handlers: HandlerRegistry;
  readonly store: TrajectoryStore;
  readonly groupStore: GroupStore;
  readonly groups: GroupClient;
  readonly tenants: Tenants;

  constructor(parts: GatewayParts) {
    this.client = parts.client;
    this.config = parts.config;
    this.handlers = parts.handlers;
    this.store = parts.store;
    this.groupStore = new GroupStore(parts.store.folder);
    this.tenants = new Tenants(parts.client, parts.config.gateway.tenants);
    this.groups = new GroupClient(parts.client.temporal, this.groupStore);
  }

  /** Checks a task that a caller sent, `at` these places of the body. @throws HttpProblem 422 naming each wrong field */
  checkTask(task: Task, at: TaskPlace = { handler: '/task/handler', data: '/task/data' }): void {
    try {
      this.handlers.open(task);
    } catch (error) {
      if (!(error instanceof RolloutError)) throw error;
      const fields =
        error instanceof InvalidTaskData
          ? error.problems.map(({ path, message }) => ({
              field: [at.data, ...path].join('/'),
              detail: message,
            }))
          : [{ field: at.handler, detail: error.message }];
      throw new HttpProblem(422, error.message, fields, undefined, { cause: error });
    }
  }

  /** Tools of a task that are known before its sandbox runs. @throws RolloutError UnknownHandler, InvalidTask */
  toolsOf(task: Task): ToolSpec[] {
    const { handler, data } = this.handlers.open(task);
    return (handler.tools?.(data) ?? []).flatMap((tool) => ('spec' in tool ? [tool.spec] : []));
  }

  /** What the agent of an ended rollout left to its grader; empty without a ledger. @throws RolloutError StoreFailed */
  async outcomeOf({ rolloutId, workflowRunId, attempt }: RolloutResult): Promise<Record<string, unknown>> {
    const records = await this.store.getLedger({ rolloutId, workflowRunId, attempt });
    const end = records?.find((record) => record.kind === 'end');
    return end?.outcome ?? {};
  }

  /**
   * Begins a rollout unless it is known; durable when this resolves. `at`: where its task stood in the body.
   * @throws HttpProblem 422, 409 if another request has this id, 429; RolloutError InvalidRequest
   */
  async submit(
    rolloutId: string,
    asked: Omit<RolloutRequestInput, 'rolloutId' | 'tenant'>,
    tenant: Tenant | undefined,
    at?: TaskPlace,
  ): Promise<void> {
    const { config, store } = this;
    this.checkTask(asked.task, at);
    // Of what was asked: a setting of the gateway that changes makes the same call no other one.
    const digest = createHash('sha256')
      .update(stringify(asked) ?? '')
      .digest('hex');
    const known = await store.getTerminal(rolloutId);
    if (!known) {
      const request = { ...overConfigured(config, asked), rolloutId, digest };
      const begun = await this.tenants.admit(tenant, 1, () => this.client.isKnown(rolloutId));
      const starting = this.client.start(tenant ? { ...request, tenant } : request);
      if ((await starting.finally(begun)).isNew) return;
    }
    const before = known ? known.requestDigest : await this.client.digestOf(rolloutId);
    if (before !== digest) throw new HttpProblem(409, `rollout ${rolloutId} was begun with another request`);
  }

  /**
   * The terminal record of a rollout, if it is there within so many milliseconds and before `gone` is aborted. One that the
   * store has needs no Temporal.
   * @throws HttpProblem 404
   */
  async record(rolloutId: string, withinMs: number, gone?: AbortSignal): Promise<RolloutResult | undefined> {
    const known = await this.store.getTerminal(rolloutId);
    if (known) return known;
    try {
      return await this.client.resultWithin(rolloutId, withinMs, gone);
    } catch (error) {
      if (!(error instanceof WorkflowNotFoundError)) throw error;
      throw new HttpProblem(404, `there is no rollout ${rolloutId}`);
    }
  }

  /** Ends a rollout; harmless on one that has ended. @throws HttpProblem 404 */
  async cancel(rolloutId: string, reason: CancelReason): Promise<void> {
    try {
      await this.client.cancel(rolloutId, reason);
    } catch (error) {
      if (!(error instanceof WorkflowNotFoundError)) throw error;
      await this.record(rolloutId, 0);
    }
  }
}
