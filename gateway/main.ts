import { once } from 'node:events';
import type { FastifyBaseLogger } from 'fastify';
import { loadHandlers } from '../activities/handlers/registry.ts';
import { openArchive } from '../activities/trajectory/archive.ts';
import { TrajectoryStore } from '../activities/trajectory/store.ts';
import { RolloutClient } from '../client/rollout-client.ts';
import { loadConfig } from '../config/load.ts';
import { loadTools } from '../config/tools.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import { makeLogger } from '../workers/log.ts';
import { announceReady } from '../workers/process.ts';
import { startTracing } from '../workers/tracing/tracing.ts';
import { makeApp } from './app.ts';
import { tokensFor } from './auth.ts';

async function main(): Promise<void> {
  const config = loadConfig();
  const { address, port } = config.gateway;
  const tokens = tokensFor(config, 'gateway.address', address);
  const log = makeLogger('gateway', config);
  const tracing = await startTracing(config, 'gateway');
  const client = await RolloutClient.connect(config, tracing?.client);
  const app = await makeApp({
    config,
    client,
    store: new TrajectoryStore(config.derived.storeFolder, openArchive(config.archive)),
    handlers: await loadHandlers(config.workers, { python: () => loadTools().python }),
    tokens,
    traced: tracing !== undefined,
    log: log as FastifyBaseLogger,
  });
  await app.listen({ host: address, port });
  announceReady({ port });
  await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT'), once(process, 'disconnect')]);
  await app.close();
  await client.close();
  await tracing?.close();
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    process.stderr.write(`gateway: ${error instanceof RolloutError ? error.message : messageOf(error)}\n`);
    process.exit(1);
  },
);
