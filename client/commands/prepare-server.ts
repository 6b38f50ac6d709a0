import { Client, Connection } from '@temporalio/client';
import type { Config } from '../../config/load.ts';
import { temporalConnection } from '../../config/temporal-connection.ts';
import { prepareNamespace } from '../../temporal-config/namespace.ts';
import { registerSchedules } from '../../temporal-config/schedules.ts';
import { registerSearchAttributes } from '../../temporal-config/search-attributes.ts';
import { unreachable } from '../../temporal-config/unreachable.ts';
import type { Output } from '../output.ts';

/** `rollouts prepare-server`: what this software needs on a Temporal server. To be run again at each upgrade. */
export async function prepareServerCommand(
  config: Config,
  retentionDays: number,
  output: Output,
): Promise<number> {
  const temporal = temporalConnection(config);
  const { namespace, connectionOptions } = temporal;
  const connection = await Connection.connect(connectionOptions).catch((error: unknown) => {
    throw unreachable(error, temporal);
  });
  try {
    await prepareNamespace(connection, namespace, retentionDays);
    const searchAttributes = await registerSearchAttributes(connection, namespace);
    await registerSchedules(new Client({ connection, namespace }));
    output.result({ namespace, retentionDays, searchAttributes }, () => {
      const added = searchAttributes.length > 0 ? searchAttributes.join(', ') : 'none were missing';
      return `namespace ${namespace}: retention ${retentionDays} days; search attributes: ${added}`;
    });
    return 0;
  } finally {
    await connection.close();
  }
}
