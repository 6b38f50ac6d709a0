import type { DataConverter } from '@temporalio/common';
import { NativeConnection } from '@temporalio/worker';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/temporal-connection.ts';
import { dataConverterOf } from '../temporal-config/encryption/data-converter.ts';
import { unreachable } from '../temporal-config/unreachable.ts';

/** What workers, and clients beside them, are made with. */
export interface Connected {
  readonly connection: NativeConnection;
  readonly namespace: string;
  readonly dataConverter: DataConverter;
}

/** Connects a process of workers. @throws Error that names the address and how it was tried */
export async function connect(config: Config): Promise<Connected> {
  const temporal = temporalConnection(config);
  const dataConverter = dataConverterOf(config);
  try {
    const connection = await NativeConnection.connect(temporal.connectionOptions);
    return { connection, namespace: temporal.namespace, dataConverter };
  } catch (error) {
    throw unreachable(error, temporal);
  }
}
