import type { FastifyInstance } from 'fastify';
import { Metrics } from '../workers/metrics/metrics.ts';

/** Counts and times the requests of the gateway. To be called before anything that might refuse one. */
export function countRequests(app: FastifyInstance): Metrics {
  const metrics = new Metrics(['gateway']);
  const seconds = metrics.histogram('rollouts_http_request_seconds');
  const open = metrics.gauge('rollouts_http_requests_open');
  app.addHook('onRequest', async (request, reply) => {
    open.inc();
    // Fastify's own hook is not called where the reader of a stream goes before its end.
    reply.raw.once('close', () => {
      open.dec();
      // Addresses that nobody serves are as many as anybody likes to ask for.
      const route = request.routeOptions.url ?? 'none';
      const code = String(reply.statusCode);
      seconds.observe({ method: request.method, route, code }, reply.elapsedTime / 1000);
    });
  });
  return metrics;
}

/** Serves them, as any route: to those who may read. */
export function serveMetrics(app: FastifyInstance, metrics: Metrics): void {
  app.get('/metrics', { schema: { hide: true }, config: { scope: 'read' } }, async (_request, reply) => {
    reply.type(metrics.registry.contentType);
    return metrics.text();
  });
}
