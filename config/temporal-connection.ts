import { loadClientConnectConfig } from '@temporalio/envconfig';
import type { Config } from './load.ts';

type ClientConnectConfig = ReturnType<typeof loadClientConnectConfig>;

/** How to reach Temporal: what the client and the worker packages' `connect` take, and the namespace. */
export interface TemporalConnection {
  readonly connectionOptions: ClientConnectConfig['connectionOptions'] & { address: string };
  readonly namespace: string;
  /** False if nothing and nobody named the address: whatever listens at the default may be somebody else's. */
  readonly chosen: boolean;
}

/**
 * Temporal's own standard client configuration (TEMPORAL_* variables and temporal.toml: addresses, TLS, API
 * keys) counts where it says something; the project's configuration fills in the rest, and wins where a
 * person set it.
 */
export function temporalConnection(config: Config): TemporalConnection {
  const standard = loadClientConnectConfig();
  const { address, namespace } = config.temporal;
  const set = config.origins;
  return {
    connectionOptions: {
      ...standard.connectionOptions,
      address: set['temporal.address'] ? address : (standard.connectionOptions.address ?? address),
    },
    chosen: set['temporal.address'] !== undefined || standard.connectionOptions.address !== undefined,
    namespace: set['temporal.namespace'] ? namespace : (standard.namespace ?? namespace),
  };
}
