import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { Resource } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import {
  makeWorkflowExporter,
  OpenTelemetryActivityInboundInterceptor,
  OpenTelemetryActivityOutboundInterceptor,
  OpenTelemetryWorkflowClientInterceptor,
} from '@temporalio/interceptors-opentelemetry';
import { traceAgents } from './agents.ts';
import { traceJudges } from './judges.ts';
import type { Tracing } from './tracing.ts';

export interface OtlpOptions {
  /** Where spans go, by OTLP over HTTP. */
  readonly endpoint: string;
  readonly component: string;
  readonly host: string;
}

/** Sends spans in batches. Sampling, headers and sizes of batches follow the standard variables of OpenTelemetry. */
export function otlpTracing({ endpoint, component, host }: OtlpOptions): Tracing {
  const resource = new Resource({
    'service.namespace': 'durable-rollouts',
    'service.name': `rollouts-${component}`,
    'host.name': host,
    'process.pid': process.pid,
  });
  const processor = new BatchSpanProcessor(new OTLPTraceExporter({ url: endpoint }));
  const provider = new BasicTracerProvider({ resource, spanProcessors: [processor] });
  provider.register({ contextManager: new AsyncLocalStorageContextManager() });
  return {
    activity: (context) => ({
      inbound: new OpenTelemetryActivityInboundInterceptor(context),
      outbound: new OpenTelemetryActivityOutboundInterceptor(context),
    }),
    client: { workflow: [new OpenTelemetryWorkflowClientInterceptor()] },
    sinks: { exporter: makeWorkflowExporter(processor, resource) },
    agents: traceAgents,
    judges: traceJudges,
    close: () => provider.shutdown(),
  };
}
