import { Runtime } from '@temporalio/worker';
import type { Logger } from 'pino';
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
  { metrics }: { readonly metrics: boolean },
): Promise<() => Promise<string>> {
  const common = { logger: temporalLogger(log), shutdownSignals: [] };
  if (!metrics) {
    Runtime.install(common);
    return async () => '';
  }
  for (let tries = 1; ; tries++) {
    const { telemetryOptions, text } = await sdkMetrics();
    try {
      Runtime.install({ ...common, telemetryOptions });
      return text;
    } catch (error) {
      if (tries >= TRIES) throw error;
    }
  }
}
