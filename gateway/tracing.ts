import type { Span } from '@opentelemetry/api';
import { context, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import type { FastifyInstance, FastifyRequest } from 'fastify';

/** Nobody wants a trace of these: they come every few seconds from whoever watches. */
const WATCHING = new Set(['/metrics', '/healthz', '/readyz']);

/**
 * Makes each request a span, of the caller's trace where the request names one (W3C `traceparent`); what it starts is
 * part of that. To be called before anything that might refuse a request.
 */
export function traceRequests(app: FastifyInstance): void {
  const spans = new WeakMap<FastifyRequest, Span>();
  app.addHook('onRequest', async (request, reply) => {
    const route = request.routeOptions.url;
    if (route === undefined || WATCHING.has(route)) return;
    const caller = propagation.extract(ROOT_CONTEXT, request.headers);
    const attributes = { 'http.request.method': request.method, 'http.route': route };
    const options = { kind: SpanKind.SERVER, attributes };
    const tracer = trace.getTracer('durable-rollouts');
    const span = tracer.startSpan(`${request.method} ${route}`, options, caller);
    spans.set(request, span);
    // Also where the reader of a stream goes before its end.
    reply.raw.once('close', () => {
      span.setAttribute('http.response.status_code', reply.statusCode);
      if (reply.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end();
    });
  });
  app.addHook('preHandler', (request, _reply, done) => {
    const span = spans.get(request);
    if (span) context.with(trace.setSpan(context.active(), span), done);
    else done();
  });
}
