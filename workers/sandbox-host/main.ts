import { Client, WorkflowIdConflictPolicy } from '@temporalio/client';
import { Worker } from '@temporalio/worker';
import { makeControlActivities } from '../../activities/control.ts';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { loadConfig } from '../../config/load.ts';
import { apptainerProgram } from '../../config/programs.ts';
import { loadTools } from '../../config/tools.ts';
import { messageOf } from '../../contracts/failures.ts';
import { controlQueue, WORKFLOW_QUEUE } from '../../contracts/queues.ts';
import { CANCEL_SWEEPER, HOST_WORKFLOW } from '../../contracts/sweep.ts';
import { connect } from '../connect.ts';
import { makeLogger } from '../log.ts';
import { countActivities } from '../metrics/activities.ts';
import { countHost } from '../metrics/host.ts';
import { startMetrics } from '../metrics/process.ts';
import { watchQueues } from '../metrics/queues.ts';
import { announceReady, runUntilStopped } from '../process.ts';
import { startTracing } from '../tracing/tracing.ts';
import { withWork } from '../work-context.ts';
import { lookUpIn } from './lookup.ts';
import { startSandboxHost } from './server.ts';

/** Milliseconds after which a host sees to it that its workflow is open. */
const PRESENT_MS = 30_000;
/** Milliseconds that calls under way may take to end when the host is told to stop. */
const SHUTDOWN_MS = 5000;

/** Entry of the sandbox host's process: its API on a Unix socket, and its control queue. */
async function main(): Promise<void> {
  const config = loadConfig();
  const log = makeLogger('sandboxHost', config);
  const { metrics, close: closeMetrics } = await startMetrics(
    config,
    config.metrics.hostPort,
    ['activities', 'queues', 'sandboxes'],
    log,
  );
  const tracing = await startTracing(config, 'sandbox-host');
  const { host } = config.derived;
  const connected = await connect(config);
  const { connection, namespace } = connected;
  const temporal = new Client(connected);
  const server = await startSandboxHost({
    stateDir: config.derived.stateFolder,
    host,
    backend: config.sandbox.backend,
    capacity: config.sandbox.capacity,
    graderCapacity: config.sandbox.graderCapacity,
    bwrapPath: loadTools().bwrap,
    apptainerPath: apptainerProgram(config),
    image: config.sandbox.image,
    audit: {
      silentMs: config.sandbox.silentSeconds * 1000,
      unknownMs: config.sandbox.unknownSeconds * 1000,
      ledgerMs: config.sandbox.ledgerSeconds * 1000,
    },
    isOpen: lookUpIn(temporal),
    logger: log,
    ...(metrics && { observe: (api, its) => countHost(api, its, metrics) }),
  });
  const sandboxes = new SandboxClient(server);
  const worker = await Worker.create({
    ...connected,
    taskQueue: controlQueue(host),
    activities: makeControlActivities({
      sandboxes,
      store: new TrajectoryStore(config.derived.storeFolder),
    }),
    maxConcurrentActivityTaskExecutions: 64,
    shutdownForceTime: SHUTDOWN_MS,
    interceptors: {
      activity: [
        ...(tracing ? [tracing.activity] : []),
        withWork,
        ...(metrics ? [countActivities(metrics)] : []),
      ],
    },
  });
  if (metrics) watchQueues(connection, namespace, [{ name: controlQueue(host), of: 'activity' }], metrics);
  log.info({ backend: config.sandbox.backend, socket: server.socketPath }, 'sandbox host is up');
  const present = (ifThereIsOne: WorkflowIdConflictPolicy) =>
    temporal.workflow.start(HOST_WORKFLOW, {
      workflowId: `host:${host}`,
      taskQueue: WORKFLOW_QUEUE,
      args: [{ host }],
      workflowIdConflictPolicy: ifThereIsOne,
      staticSummary: `sandbox host ${host}`,
    });
  // The first sweep would wait for it to begin.
  await temporal.workflow.start(CANCEL_SWEEPER, {
    workflowId: CANCEL_SWEEPER,
    taskQueue: WORKFLOW_QUEUE,
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
  });
  // One of an earlier host that has taken its leave may be open still: it ends when a workflow worker looks at it.
  await present(WorkflowIdConflictPolicy.TERMINATE_EXISTING);
  // Somebody may end it by hand: without it no sweep would find this host.
  const again = setInterval(() => {
    present(WorkflowIdConflictPolicy.USE_EXISTING).catch((error: unknown) =>
      log.warn({ problem: messageOf(error) }, 'the workflow of this host could not be looked after'),
    );
  }, PRESENT_MS);
  announceReady();
  try {
    await runUntilStopped([worker], SHUTDOWN_MS);
  } finally {
    clearInterval(again);
    await server.close();
    await sandboxes.close();
  }
  await connection.close();
  await tracing?.close();
  await closeMetrics();
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    process.stderr.write(`sandbox host: ${error instanceof Error ? error.stack : messageOf(error)}\n`);
    process.exit(1);
  },
);
