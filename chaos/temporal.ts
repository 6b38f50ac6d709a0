import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { loadTools, PROJECT_ROOT } from '../config/tools.ts';
import { devServerArguments, waitForServer, withParentDeath } from '../temporal-config/dev-server.ts';
import { prepareNamespace } from '../temporal-config/namespace.ts';
import { registerSearchAttributes } from '../temporal-config/search-attributes.ts';
import { type Child, type ChildOptions, type Processes, tailOf } from '../workers/stack/processes.ts';
import type { Place } from './network.ts';

/** A PostgreSQL that has the schema, and the programs of a production server. */
export const ProductionServer = z.strictObject({
  /** Folder that temporal-config/production/install.sh filled. */
  programs: z.string(),
  sqlPort: z.int(),
  sqlPassword: z.string(),
});
export type ProductionServer = z.infer<typeof ProductionServer>;

/** What a file given by --production says; undefined without one. */
export function readProduction(file: string | undefined): ProductionServer | undefined {
  return file === undefined ? undefined : ProductionServer.parse(JSON.parse(readFileSync(file, 'utf8')));
}

const NAMESPACE = 'default';

/** Ports of a server, and the machine that it runs on: this one's loopback if absent. */
interface Where {
  readonly port: number;
  readonly uiPort: number;
  readonly place?: Place | undefined;
}

/** Starts the cluster's server: the development server on a file, or the production server. @returns when it answers */
export async function startTemporal(
  processes: Processes,
  root: string,
  where: Where,
  production: ProductionServer | undefined,
): Promise<Child> {
  const child = processes.start(production ? onPostgres(production, where.port) : onFile(root, where));
  const connection = await Promise.race([
    waitForServer(
      `${where.place?.address ?? '127.0.0.1'}:${where.port}`,
      production ? 'temporal-system' : NAMESPACE,
      { ended: child.ended },
    ),
    child.ended.then((how) => Promise.reject(new Error(`${how}:\n${tailOf(child.logFile)}`))),
  ]);
  if (production) await prepareNamespace(connection, NAMESPACE, 3);
  await registerSearchAttributes(connection, NAMESPACE);
  await connection.close();
  return child;
}

function onFile(root: string, { place, ...ports }: Where): ChildOptions {
  const server = { ...ports, databaseFile: path.join(root, 'temporal.db'), namespace: NAMESPACE };
  // All addresses: its parts speak to each other over the loopback.
  const address = place && { address: '0.0.0.0' };
  const argv = withParentDeath(loadTools().temporal, devServerArguments({ ...server, ...address }));
  const [command, ...args] = [...(place?.inside ?? []), ...argv.flat()];
  return { name: 'temporal', command: command as string, args };
}

function onPostgres({ programs, sqlPort, sqlPassword }: ProductionServer, port: number): ChildOptions {
  const script = path.join(PROJECT_ROOT, 'temporal-config', 'production', 'serve.sh');
  const [command, args] = withParentDeath(script, []);
  const env = {
    TEMPORAL_PROGRAMS: programs,
    TEMPORAL_PORT: String(port),
    SQL_PORT: String(sqlPort),
    SQL_PASSWORD: sqlPassword,
  };
  return { name: 'temporal', command, args, env };
}
