import { once } from 'node:events';
import type { FastifyBaseLogger } from 'fastify';
import { loadHandlers } from '../activities/handlers/registry.ts';
import { TrajectoryStore } from '../activities/trajectory/store.ts';
import { RolloutClient } from '../client/rollout-client.ts';
import { loadConfig } from '../config/load.ts';
import { loadTools } from '../config/tools.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import { makeLogger } from '../workers/log.ts';
import { announceReady } from '../workers/process.ts';
import { makeApp } from './app.ts';
import { readTokens } from './auth.ts';

const LOOPBACK = /^(127\.|localhost$|::1$)/;

async function main(): Promise<void> {
  const config = loadConfig();
  const { address, port, tokens } = config.gateway;
  if (tokens === undefined && !LOOPBACK.test(address)) {
    throw new RolloutError(
      'InvalidRequest',
      `gateway.address ${address} is open to others: set gateway.tokens, a file that "rollouts token" adds to`,
    );
  }
  const log = makeLogger('gateway', 'info');
  const client = await RolloutClient.connect(config);
  const app = await makeApp({
    config,
    client,
    store: new TrajectoryStore(config.derived.storeFolder),
    handlers: await loadHandlers(config.workers.handlers, { python: () => loadTools().python }),
    tokens: tokens === undefined ? undefined : readTokens(tokens),
    log: log as FastifyBaseLogger,
  });
  await app.listen({ host: address, port });
  announceReady({ port });
  await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT'), once(process, 'disconnect')]);
  await app.close();
  await client.close();
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    process.stderr.write(`gateway: ${error instanceof RolloutError ? error.message : messageOf(error)}\n`);
    process.exit(1);
  },
);
