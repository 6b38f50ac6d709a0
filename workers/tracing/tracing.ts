import type { ClientInterceptors } from '@temporalio/client';
import type { ActivityInterceptorsFactory, WorkerOptions } from '@temporalio/worker';
import type { LabelledServers } from '../../activities/grading/judge-model.ts';
import type { SandboxClient } from '../../activities/sandbox/client.ts';
import type { Config } from '../../config/load.ts';

/** What a process traces by. */
export interface Tracing {
  readonly activity: ActivityInterceptorsFactory;
  readonly client: ClientInterceptors;
  /** Takes the spans of workflows. */
  readonly sinks: NonNullable<WorkerOptions['sinks']>;
  /** Sandboxes as the run stage uses them: turns, requests for tokens and tool calls become spans. */
  agents(sandboxes: SandboxClient): SandboxClient;
  /** Servers as the evaluate stage uses them: requests to judges become spans. */
  judges<S extends LabelledServers>(servers: S): S;
  /** Sends what is left. */
  close(): Promise<void>;
}

/**
 * Begins to send spans where the configuration or the standard variables of OpenTelemetry say where to. Elsewhere it
 * loads nothing and there is nothing in any call’s way. `component` is a name of the process.
 */
export async function startTracing({ derived }: Config, component: string): Promise<Tracing | undefined> {
  const { tracesEndpoint, host } = derived;
  if (tracesEndpoint === null) return undefined;
  const { otlpTracing } = await import('./otlp.ts');
  return otlpTracing({ endpoint: tracesEndpoint, component, host });
}
