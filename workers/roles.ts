import { NativeConnection, Runtime, Worker, type WorkerOptions } from '@temporalio/worker';
import { PARSERS } from '../activities/agent/parsers/formats.ts';
import { makeEvaluateActivities } from '../activities/evaluate.ts';
import { makeGroupActivities } from '../activities/groups/activities.ts';
import { GroupStore } from '../activities/groups/group-store.ts';
import { loadHandlers } from '../activities/handlers/registry.ts';
import { makeInitActivities } from '../activities/init.ts';
import { makeRunActivities } from '../activities/run.ts';
import { SandboxClient } from '../activities/sandbox/client.ts';
import { makeSweepActivities } from '../activities/sweep.ts';
import { TrajectoryStore } from '../activities/trajectory/store.ts';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/temporal-connection.ts';
import { loadTools } from '../config/tools.ts';
import { evalQueue, initQueue, RECORDS_QUEUE, runQueue, WORKFLOW_QUEUE } from '../contracts/queues.ts';
import { dataConverterOf } from '../temporal-config/encryption/data-converter.ts';
import { SandboxAdmission } from './admission.ts';
import { joinPool, type PoolPart } from './pool/member.ts';
import { sandboxHostAddress } from './sandbox-host/address.ts';
import { workflowBundle } from './workflow-bundle.ts';

/** What a worker process can do; any set of them. */
export const ROLES = ['workflow', 'init', 'run', 'eval'] as const;
export type Role = (typeof ROLES)[number];

/** Workers of one process, ready to run. */
export interface RoleWorkers {
  readonly workers: Worker[];
  /** To be called when they have stopped. */
  close(): Promise<void>;
}

/** Makes one Temporal worker per role, each with its own slots. */
export async function makeWorkers(config: Config, roles: readonly Role[]): Promise<RoleWorkers> {
  const { connectionOptions, namespace } = temporalConnection(config);
  const connection = await NativeConnection.connect(connectionOptions);
  const handlers = await loadHandlers(config.workers.handlers, { python: () => loadTools().python });
  const store = new TrajectoryStore(config.derived.storeFolder);
  const sandboxes = new SandboxClient(sandboxHostAddress(config.derived.stateFolder));
  const dataConverter = dataConverterOf(config);
  const shared = {
    connection,
    namespace,
    dataConverter,
    // Work is broken off at once and goes on elsewhere (a turn is at most lost in part); what remains is
    // hand-over, which gets this long.
    shutdownGraceTime: 0,
    shutdownForceTime: `${config.workers.shutdownSeconds}s`,
    maxHeartbeatThrottleInterval: '10s',
  } as const satisfies Omit<WorkerOptions, 'taskQueue'>;
  // Graders ask judge models, which are servers of the pool as well.
  const samples = roles.includes('run') || roles.includes('eval');
  const pool = samples ? await joinPool(config, shared) : undefined;

  const makers: Record<Role, () => Promise<Worker | Worker[]>> = {
    workflow: async () =>
      Worker.create({
        ...shared,
        taskQueue: WORKFLOW_QUEUE,
        workflowBundle: await workflowBundle(Runtime.instance().logger, dataConverter),
        maxConcurrentWorkflowTaskExecutions: config.workers.workflowSlots,
        // Open rollouts wait this long for a workflow worker that died before another takes them up.
        stickyQueueScheduleToStartTimeout: '5s',
      }),
    init: () =>
      Worker.create({
        ...shared,
        taskQueue: initQueue(),
        activities: makeInitActivities({ handlers, sandboxes, host: loadTools(), store }),
        tuner: {
          workflowTaskSlotSupplier: { type: 'fixed-size', numSlots: 2 },
          activityTaskSlotSupplier: new SandboxAdmission(sandboxes, config.workers.initSlots),
          localActivityTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
          nexusTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
        },
      }),
    run: () =>
      Worker.create({
        ...shared,
        taskQueue: runQueue(config.derived.host),
        activities: makeRunActivities({
          handlers,
          sandboxes,
          policies: (pool as PoolPart).view,
          parser: PARSERS[config.llm.toolFormat],
          store,
        }),
        maxConcurrentActivityTaskExecutions: config.workers.runSlots ?? config.sandbox.capacity,
      }),
    eval: async () => {
      const { evaluate, conclude } = makeEvaluateActivities({
        handlers,
        store,
        sandboxes,
        servers: pool?.view,
      });
      return [
        await Worker.create({
          ...shared,
          taskQueue: evalQueue(),
          activities: { evaluate },
          maxConcurrentActivityTaskExecutions: config.workers.evalSlots,
        }),
        // Its own slots: a record must not wait behind graders that hang.
        await Worker.create({
          ...shared,
          taskQueue: RECORDS_QUEUE,
          activities: {
            conclude,
            ...makeSweepActivities({ store }),
            ...makeGroupActivities({
              ...{ store, pool: config.llm.pool },
              groups: new GroupStore(config.derived.storeFolder),
            }),
          },
        }),
      ];
    },
  };
  const workers: Worker[] = [...(pool?.workers ?? [])];
  for (const role of roles) workers.push(...[await makers[role]()].flat());
  return {
    workers,
    close: async () => {
      await pool?.leave();
      await handlers.python.close?.();
      await connection.close();
      await sandboxes.close();
    },
  };
}
