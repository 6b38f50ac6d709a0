import { Runtime } from '@temporalio/worker';
import type { Logger } from 'pino';
import type { Config } from '../config/load.ts';
import { temporalLogger } from './log.ts';
import { sdkMetrics } from './metrics/sdk.ts';

/** So often another port is chosen for the SDK's metrics where one was taken meanwhile. */
const TRIES = 5;

/**
 * Installs the Temporal runtime of this process: its lines go to `log`, and with `metrics` it counts.
 * @returns what it has counted, in Prometheus' text format
 */
export async function installRuntime(
  log: Logger,
  levels: Config['log'],
  { metrics }: { readonly metrics: boolean },
): Promise<() => Promise<string>> {
  const common = { logger: temporalLogger(log, levels), shutdownSignals: [] };
  // The native part of the SDK would write to standard output by itself, in a format of its own.
  const logging = { filter: { core: 'WARN', other: 'ERROR' }, forward: {} } as const;
  if (!metrics) {
    Runtime.install({ ...common, telemetryOptions: { logging } });
    return async () => '';
  }
  for (let tries = 1; ; tries++) {
    const { telemetryOptions, text } = await sdkMetrics();
    try {
      Runtime.install({ ...common, telemetryOptions: { ...telemetryOptions, logging } });
      return text;
    } catch (error) {
      if (tries >= TRIES) throw error;
    }
  }
}
