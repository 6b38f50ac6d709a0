import type { Logger } from 'pino';
import type { Config } from '../../config/load.ts';
import { installRuntime } from '../runtime.ts';
import { MetricsListener } from './listener.ts';
import { Metrics } from './metrics.ts';
import type { Component } from './table.ts';

/** Metrics of a process, and how it stops to serve them. */
export interface ProcessMetrics {
  /** Undefined where they are switched off. */
  readonly metrics: Metrics | undefined;
  close(): Promise<void>;
}

/** Installs the Temporal runtime of this process and serves its metrics at `port`; 0 or undefined: there are none. */
export async function startMetrics(
  config: Config,
  port: number | undefined,
  components: readonly Component[],
  log: Logger,
): Promise<ProcessMetrics> {
  if (!port) {
    await installRuntime(log, config.log, { metrics: false });
    return { metrics: undefined, close: async () => {} };
  }
  const more = await installRuntime(log, config.log, { metrics: true });
  const metrics = new Metrics(components);
  const listener = new MetricsListener({ address: config.metrics.address, port, metrics, more, log });
  listener.start();
  return { metrics, close: () => listener.close() };
}
