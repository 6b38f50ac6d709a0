import { ApplicationFailure, Context } from '@temporalio/activity';
import type { DataConverter } from '@temporalio/common';
import { NativeConnection, Worker } from '@temporalio/worker';
import { makeGroupActivities } from '../../activities/groups/activities.ts';
import { GroupStore } from '../../activities/groups/group-store.ts';
import { makeSweepActivities } from '../../activities/sweep.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { type FailureType, helpsInStage } from '../../contracts/failures.ts';
import {
  controlQueue,
  evalQueue,
  initQueue,
  RECORDS_QUEUE,
  runQueue,
  WORKFLOW_QUEUE,
} from '../../contracts/queues.ts';
import { recordIdentity, recordTimings } from '../../contracts/record.ts';
import type {
  ControlActivities,
  EvaluateActivities,
  HostActivities,
  InitActivities,
  Placement,
  RunActivities,
  RunReport,
} from '../../contracts/stages.ts';
import { workflowBundle } from '../support/workflows.ts';

/**
 * Stages that do what a test says: the workflow's decisions are under test here, against a real server. The
 * real stages have tests of their own.
 */
export interface Script {
  init: InitActivities['init'];
  run: RunActivities['run'];
  evaluate: EvaluateActivities['evaluate'];
  conclude: EvaluateActivities['conclude'];
  abort: ControlActivities['abort'];
  pause: ControlActivities['pause'];
  shelve: ControlActivities['shelve'];
  release: ControlActivities['release'];
  abortMany: HostActivities['abortMany'];
  copySoFar: HostActivities['copySoFar'];
}

export const placement: Placement = {
  host: 'host-a',
  sandboxId: 'sandbox-1',
  workspace: '/workspace',
  backend: 'bubblewrap',
  runQueue: runQueue('host-a'),
  controlQueue: controlQueue('host-a'),
  ms: 5,
};

export const report: RunReport = {
  ended: 'finished',
  cancel: null,
  turns: 2,
  tokens: 30,
  policyVersions: [3, 3],
  processesKilled: 1,
  ms: 20,
};

/** What every stage does unless a test says otherwise. */
export const usual: Script = {
  init: async () => placement,
  run: async () => report,
  evaluate: async ({ request, attempt, record }) => ({
    ...recordIdentity(request, Context.current().info.workflowExecution?.runId as string),
    outcome: 'completed',
    reward: { total: 0.5, parts: { correct: 0.5 } },
    truncation: null,
    cancel: null,
    failure: null,
    retried: record.retried,
    attempt,
    host: placement.host,
    backend: placement.backend,
    policyVersions: report.policyVersions,
    trajectory: null,
    startedAt: record.startedAt,
    endedAt: new Date().toISOString(),
    timings: recordTimings(record.startedAt, new Date().toISOString(), {
      initMs: 1,
      runMs: 1,
      pausedMs: record.pausedMs ?? 0,
      evaluateMs: 1,
    }),
  }),
  conclude: async ({ result }) => ({ ...result, trajectory: null, policyVersions: null }),
  abort: async () => {},
  pause: async () => {},
  shelve: async () => null,
  release: async () => ({ processesKilled: 4, released: { killMs: 30, ms: 8 }, problem: null }),
  abortMany: async () => ({ rolloutIds: [], unheld: [] }),
  copySoFar: async () => {},
};

/** Throws a failure of the table as a stage would. */
export function fail(type: FailureType, message: string = type): never {
  throw ApplicationFailure.create({ type, message, nonRetryable: !helpsInStage(type) });
}

/** Resolves when the activity is cancelled; beats until then, since that is how it hears of it. */
export async function untilCancelled(): Promise<never> {
  const context = Context.current();
  const beat = setInterval(() => context.heartbeat(), 100);
  try {
    return await context.cancelled;
  } finally {
    clearInterval(beat);
  }
}

/**
 * Runs workers on all queues with a script whose parts a test may replace while they run. What reaches many
 * rollouts through Temporal is the real thing.
 */
export async function startScriptedWorkers(
  address: string,
  store = new TrajectoryStore('/nonexistent'),
  dataConverter: DataConverter = {},
  initSlots = 100,
): Promise<{
  script: Script;
  calls: string[];
  /** Takes commands for another host. */
  startControl(host: string, release: Script['release']): Promise<{ stop(): Promise<void> }>;
  /** Ends the workflow worker and starts another, which knows nothing. */
  restartWorkflows(): Promise<void>;
  stop(): Promise<void>;
}> {
  const bundle = await workflowBundle(dataConverter);
  const connection = await NativeConnection.connect({ address });
  const script: Script = { ...usual };
  const calls: string[] = [];
  const called = (name: keyof Script) => async (input: never) => {
    calls.push(name);
    return script[name](input);
  };
  const shared = {
    connection,
    dataConverter,
    maxHeartbeatThrottleInterval: '100ms' as const,
    shutdownForceTime: '5s' as const,
  };
  const workflowWorker = () =>
    Worker.create({ ...shared, taskQueue: WORKFLOW_QUEUE, workflowBundle: bundle });
  const workers = [
    await workflowWorker(),
    await Worker.create({
      ...{ ...shared, taskQueue: initQueue(), activities: { init: called('init') } },
      maxConcurrentActivityTaskExecutions: initSlots,
    }),
    await Worker.create({ ...shared, taskQueue: runQueue('host-a'), activities: { run: called('run') } }),
    await Worker.create({
      ...shared,
      taskQueue: evalQueue(),
      activities: { evaluate: called('evaluate') },
    }),
    await Worker.create({
      ...shared,
      taskQueue: RECORDS_QUEUE,
      activities: {
        conclude: called('conclude'),
        ...makeSweepActivities({ store }),
        ...makeGroupActivities({ store, pool: 'default', groups: new GroupStore(store.folder) }),
      },
    }),
    await Worker.create({
      ...shared,
      taskQueue: controlQueue('host-a'),
      activities: {
        abort: called('abort'),
        pause: called('pause'),
        shelve: called('shelve'),
        release: called('release'),
        abortMany: called('abortMany'),
        copySoFar: called('copySoFar'),
      },
    }),
  ];
  const running = workers.map((worker) => worker.run());
  return {
    script,
    calls,
    startControl: async (host, release) => {
      const worker = await Worker.create({
        ...shared,
        taskQueue: controlQueue(host),
        activities: { release },
      });
      const done = worker.run();
      return {
        stop: async () => {
          worker.shutdown();
          await done;
        },
      };
    },
    restartWorkflows: async () => {
      workers[0]?.shutdown();
      await running[0];
      workers[0] = await workflowWorker();
      running[0] = workers[0].run();
    },
    stop: async () => {
      for (const worker of workers) worker.shutdown();
      await Promise.all(running);
      await connection.close();
    },
  };
}
