import { loadConfig } from '../config/load.ts';
import { temporalConnection } from '../config/temporal-connection.ts';
import { messageOf } from '../contracts/failures.ts';
import { makeLogger } from './log.ts';
import { startMetrics } from './metrics/process.ts';
import { announceReady, runUntilStopped } from './process.ts';
import { componentsOf, makeWorkers, ROLES, type Role } from './roles.ts';
import { startTracing } from './tracing/tracing.ts';

/** Entry of a worker process: `main.ts [role,role,…]`; all roles if none is named. */
async function main(): Promise<void> {
  const config = loadConfig();
  const log = makeLogger('worker', config);
  const roles = parseRoles(process.argv[2]);
  const { workerPort } = config.metrics;
  const { metrics, close: closeMetrics } = await startMetrics(config, workerPort, componentsOf(roles), log);
  const tracing = await startTracing(config, 'worker');
  const { workers, close } = await makeWorkers(config, roles, { log, metrics, tracing });
  const { address: temporal } = temporalConnection(config).connectionOptions;
  log.info({ roles, temporal }, 'worker is up');
  announceReady();
  await runUntilStopped(workers, config.workers.shutdownSeconds * 1000);
  await close();
  await tracing?.close();
  await closeMetrics();
  log.info('worker has stopped');
}

function parseRoles(text: string | undefined): Role[] {
  const wanted = text ? text.split(',') : [...ROLES];
  for (const role of wanted) {
    if (!(ROLES as readonly string[]).includes(role)) {
      throw new Error(`unknown role "${role}"; roles are ${ROLES.join(', ')}`);
    }
  }
  return wanted as Role[];
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    process.stderr.write(`worker: ${error instanceof Error ? error.stack : messageOf(error)}\n`);
    process.exit(1);
  },
);
