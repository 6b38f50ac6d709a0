import {
  type ActivityInterceptorsFactory,
  type NativeConnection,
  Runtime,
  Worker,
  type WorkerOptions,
} from '@temporalio/worker';
import type { Logger } from 'pino';
import { PARSERS } from '../activities/agent/parsers/formats.ts';
import { makeEvaluateActivities } from '../activities/evaluate.ts';
import { makeGroupActivities } from '../activities/groups/activities.ts';
import { GroupStore } from '../activities/groups/group-store.ts';
import { loadHandlers } from '../activities/handlers/registry.ts';
import { makeInitActivities } from '../activities/init.ts';
import { makeRunActivities, type PolicySource } from '../activities/run.ts';
import { SandboxClient } from '../activities/sandbox/client.ts';
import { makeSweepActivities } from '../activities/sweep.ts';
import { TrajectoryStore } from '../activities/trajectory/store.ts';
import type { Config } from '../config/load.ts';
import { loadTools } from '../config/tools.ts';
import { POLICY_LABEL, versionOf } from '../contracts/pool.ts';
import {
  DEPLOYMENT,
  evalQueue,
  initQueue,
  RECORDS_QUEUE,
  runQueue,
  WORKFLOW_QUEUE,
} from '../contracts/queues.ts';
import { SandboxAdmission } from './admission.ts';
import { connect } from './connect.ts';
import { DiskWatermark } from './disk-watermark.ts';
import { LlmPacing } from './llm-pacing.ts';
import { countActivities } from './metrics/activities.ts';
import { countRuns } from './metrics/agents.ts';
import { PoolWatch } from './metrics/llm.ts';
import type { Metrics } from './metrics/metrics.ts';
import { watchOpen } from './metrics/open.ts';
import { countedParts } from './metrics/parts.ts';
import { type TakenQueue, watchQueues } from './metrics/queues.ts';
import type { Component } from './metrics/table.ts';
import { joinPool } from './pool/member.ts';
import { sandboxHostAddress } from './sandbox-host/address.ts';
import { stageLines } from './stage-lines.ts';
import type { Tracing } from './tracing/tracing.ts';
import { withWork } from './work-context.ts';
import { workflowBundle } from './workflow-bundle.ts';

/** What a worker process can do; any set of them. */
export const ROLES = ['workflow', 'init', 'run', 'eval'] as const;
export type Role = (typeof ROLES)[number];

/** What a process with these roles has to tell of itself. */
export function componentsOf(roles: readonly Role[]): Component[] {
  const has = (role: Role, ...components: Component[]) => (roles.includes(role) ? components : []);
  return [
    ...(['activities', 'queues'] as const),
    ...has('workflow', 'workflows'),
    ...has('init', 'admission'),
    ...has('run', 'agents', 'llm'),
    ...has('eval', 'outcomes', 'batches', 'llm'),
  ];
}

/** Workers of one process, ready to run. */
export interface RoleWorkers {
  readonly workers: Worker[];
  /** To be called when they have stopped. */
  close(): Promise<void>;
}

/** What looks on while workers work. */
export interface Instruments {
  readonly log?: Logger;
  readonly metrics?: Metrics | undefined;
  readonly tracing?: Tracing | undefined;
}

/** Makes one Temporal worker per role, each with its own slots. */
export async function makeWorkers(
  config: Config,
  roles: readonly Role[],
  { log, metrics, tracing }: Instruments = {},
): Promise<RoleWorkers> {
  const connected = await connect(config);
  const { connection, namespace, dataConverter } = connected;
  const handlers = await loadHandlers(config.workers, { python: () => loadTools().python });
  const store = new TrajectoryStore(config.derived.storeFolder);
  const sandboxes = new SandboxClient(sandboxHostAddress(config.derived.stateFolder));
  const disk = new DiskWatermark({
    folders: { state: config.derived.stateFolder, store: config.derived.storeFolder },
    minFreeBytes: config.sandbox.minFreeBytes,
    logger: Runtime.instance().logger,
  });
  const shared = {
    ...connected,
    // Work is broken off at once and goes on elsewhere (a turn is at most lost in part); what remains is
    // hand-over, which gets this long.
    shutdownGraceTime: 0,
    shutdownForceTime: `${config.workers.shutdownSeconds}s`,
    // Those who beat say how often. The SDK itself would send one only every 0.8 of a timeout, which leaves a busy
    // machine three seconds of fifteen.
    maxHeartbeatThrottleInterval: '1s',
    interceptors: {
      activity: [...(tracing ? [tracing.activity] : []), ...interceptorsOf(log, metrics)],
      ...(tracing && { client: tracing.client }),
    },
    ...(tracing && { sinks: tracing.sinks }),
  } satisfies Omit<WorkerOptions, 'taskQueue'>;
  // Graders ask judge models, which are servers of the pool as well.
  const samples = roles.includes('run') || roles.includes('eval');
  const watch = metrics && samples ? new PoolWatch(metrics) : undefined;
  const paces = roles.includes('init') && config.workers.llmPacing;
  const pool = samples || paces ? await joinPool(config, shared, watch?.changed) : undefined;
  if (pool) watch?.watch(pool.view);
  const parts = countedParts(
    { store, groups: new GroupStore(config.derived.storeFolder), sandboxes, servers: pool?.view },
    metrics,
    {
      kinds: new Set(handlers.list().map(({ name }) => name)),
      version: () => pool?.view.lease.state && versionOf(pool.view.lease.state),
    },
  );

  let pacing: LlmPacing | undefined;
  const makers: Record<Role, () => Promise<Worker | Worker[]>> = {
    workflow: async () =>
      Worker.create({
        ...shared,
        taskQueue: WORKFLOW_QUEUE,
        workflowBundle: await workflowBundle(Runtime.instance().logger, dataConverter, {
          traced: tracing !== undefined,
        }),
        maxConcurrentWorkflowTaskExecutions: config.workers.workflowSlots,
        ...deploymentOf(config),
        // Open rollouts wait this long for a workflow worker that died before another takes them up.
        stickyQueueScheduleToStartTimeout: '5s',
      }),
    init: () => {
      const admission = new SandboxAdmission({
        ...{ sandboxes, disk, slots: config.workers.initSlots },
        most: () => pacing?.most ?? Number.POSITIVE_INFINITY,
      });
      if (paces && pool) {
        const label = config.rollout.serverLabel ?? POLICY_LABEL;
        pacing = new LlmPacing({ view: pool.view, label, agents: () => admission.agents() });
        pacing.start();
      }
      return Worker.create({
        ...shared,
        taskQueue: initQueue(),
        activities: makeInitActivities({
          ...{ handlers, sandboxes, host: loadTools(), store },
          sandboxMade: () => admission.sandboxMade(),
        }),
        tuner: {
          workflowTaskSlotSupplier: { type: 'fixed-size', numSlots: 2 },
          activityTaskSlotSupplier: admission,
          localActivityTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
          nexusTaskSlotSupplier: { type: 'fixed-size', numSlots: 1 },
        },
      });
    },
    run: () =>
      Worker.create({
        ...shared,
        taskQueue: runQueue(config.derived.host),
        activities: makeRunActivities({
          handlers,
          sandboxes: tracing ? tracing.agents(parts.sandboxes) : parts.sandboxes,
          policies: parts.servers as PolicySource,
          parser: PARSERS[config.llm.toolFormat],
          store,
        }),
        maxConcurrentActivityTaskExecutions: config.workers.runSlots ?? config.sandbox.capacity,
      }),
    eval: async () => {
      const { store, groups } = parts;
      const servers = tracing && parts.servers ? tracing.judges(parts.servers) : parts.servers;
      const { evaluate, conclude } = makeEvaluateActivities({ handlers, store, sandboxes, servers });
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
            ...makeGroupActivities({ store, groups, pool: config.llm.pool, pageUrl: config.gateway.url }),
          },
        }),
      ];
    },
  };
  const workers: Worker[] = [...(pool?.workers ?? [])];
  for (const role of roles) workers.push(...[await makers[role]()].flat());
  if (metrics) {
    watchWork(metrics, { config, roles, connection, namespace });
    if (roles.includes('init')) {
      const most = metrics.gauge('rollouts_agents_most');
      metrics.onScrape(() =>
        most.set(Math.min(config.sandbox.capacity, pacing?.most ?? Number.POSITIVE_INFINITY)),
      );
      const free = metrics.gauge('rollouts_disk_free_bytes');
      metrics.onScrape(async () => {
        // A disk that cannot be asked is not told of, and the rest of the metrics are.
        const disks = await disk.free().catch(() => []);
        free.reset();
        for (const each of disks) free.set({ folder: each.name }, each.free);
      });
      metrics.gauge('rollouts_disk_least_bytes').set(config.sandbox.minFreeBytes);
    }
  }
  return {
    workers,
    close: async () => {
      await pacing?.stop();
      await pool?.leave();
      await handlers.python.close?.();
      await connection.close();
      await sandboxes.close();
    },
  };
}

/** What makes a workflow worker one of a version. Rollouts go on under whatever version is current: each replays them. */
function deploymentOf({ workers: { buildId } }: Config): Pick<WorkerOptions, 'workerDeploymentOptions'> {
  if (buildId === undefined) return {};
  return {
    workerDeploymentOptions: {
      useWorkerVersioning: true,
      version: { deploymentName: DEPLOYMENT, buildId },
      defaultVersioningBehavior: 'AUTO_UPGRADE',
    },
  };
}

function interceptorsOf(
  log: Logger | undefined,
  metrics: Metrics | undefined,
): ActivityInterceptorsFactory[] {
  return [
    withWork,
    ...(log ? [stageLines(log)] : []),
    ...(metrics ? [countActivities(metrics)] : []),
    ...(metrics?.has('agents') ? [countRuns(metrics)] : []),
  ];
}

/** Tells of the queues that this process takes from, of its slots, and of the rollouts that are open. */
function watchWork(
  metrics: Metrics,
  {
    config,
    roles,
    connection,
    namespace,
  }: { config: Config; roles: readonly Role[]; connection: NativeConnection; namespace: string },
): void {
  const { workers, sandbox, derived } = config;
  const queues: Record<Role, TakenQueue[]> = {
    workflow: [{ name: WORKFLOW_QUEUE, of: 'workflow' }],
    init: [{ name: initQueue(), of: 'activity' }],
    run: [{ name: runQueue(derived.host), of: 'activity' }],
    eval: [
      { name: evalQueue(), of: 'activity' },
      { name: RECORDS_QUEUE, of: 'activity' },
    ],
  };
  watchQueues(
    connection,
    namespace,
    roles.flatMap((role) => queues[role]),
    metrics,
  );
  const slots = metrics.gauge('rollouts_activity_slots');
  if (roles.includes('init')) slots.set({ activity: 'init' }, workers.initSlots);
  if (roles.includes('run')) slots.set({ activity: 'run' }, workers.runSlots ?? sandbox.capacity);
  if (roles.includes('eval')) slots.set({ activity: 'evaluate' }, workers.evalSlots);
  if (metrics.has('workflows')) watchOpen(connection, namespace, metrics);
}
