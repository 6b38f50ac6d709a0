import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import rateLimit from '@fastify/rate-limit';
import swagger from '@fastify/swagger';
import Fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify';
import { jsonSchemaTransform, serializerCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import { RolloutError } from '../contracts/failures.ts';
import { protect, type Tokens } from './auth.ts';
import { type App, Gateway, type GatewayParts } from './gateway.ts';
import { countRequests, serveMetrics } from './metrics.ts';
import { answerProblems } from './problems.ts';
import { batchRoutes } from './routes/batches.ts';
import { conversationRoutes } from './routes/conversation.ts';
import { groupRoutes } from './routes/groups.ts';
import { operationRoutes } from './routes/operations.ts';
import { pageRoutes } from './routes/page.ts';
import { pageDataRoutes } from './routes/page-data.ts';
import { poolRoutes } from './routes/pool.ts';
import { processRoutes } from './routes/process.ts';
import { rolloutRoutes } from './routes/rollouts.ts';
import { trajectoryRoutes } from './routes/trajectory.ts';
import { traceRequests } from './tracing.ts';
import { compileValidator } from './validation.ts';

/** Who sends a request byte by byte has no more of a connection than this, in milliseconds. */
const ARRIVES_WITHIN_MS = 120_000;
/** Silence of a connection after which the kernel asks its other end, in milliseconds. */
const ALIVE_MS = 60_000;

/** What an app is made with. */
export interface AppOptions extends GatewayParts {
  readonly tokens: Tokens | undefined;
  readonly log: FastifyBaseLogger;
  /** Its requests become spans. */
  readonly traced?: boolean;
}

/** The whole gateway, ready to listen. */
export async function makeApp({ tokens, log, traced = false, ...parts }: AppOptions): Promise<App> {
  const { gateway: settings } = parts.config;
  const { certificate, key } = settings;
  if ((certificate === undefined) !== (key === undefined)) {
    throw new RolloutError('InvalidRequest', 'gateway.certificate and gateway.key belong together');
  }
  const https =
    certificate === undefined || key === undefined
      ? {}
      : { https: { cert: await readFile(certificate), key: await readFile(key) } };
  const app = Fastify({
    ...https,
    loggerInstance: log,
    bodyLimit: settings.bodyBytes,
    routerOptions: { maxParamLength: 300 },
    // For a request to arrive; an answer may take as long as it likes, and a long poll or a stream be silent meanwhile.
    requestTimeout: ARRIVES_WITHIN_MS,
    connectionTimeout: 0,
  }).withTypeProvider<ZodTypeProvider>();
  if (traced) traceRequests(app as unknown as FastifyInstance);
  const metrics = countRequests(app as unknown as FastifyInstance);
  app.server.maxConnections = settings.connections;
  // Readers of streams that were cut off say nothing: the kernel asks whether they are there.
  app.server.on('connection', (socket: Socket) => socket.setKeepAlive(true, ALIVE_MS));
  app.setValidatorCompiler(compileValidator);
  app.setSerializerCompiler(serializerCompiler);
  answerProblems(app);
  await app.register(rateLimit, { max: settings.requestsPerSecond, timeWindow: 1000 });
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Durable rollouts', version: '1' },
      components: { securitySchemes: { token: { type: 'http', scheme: 'bearer' } } },
      security: tokens ? [{ token: [] }] : [],
    },
    transform: jsonSchemaTransform,
  });
  protect(app, tokens);
  serveMetrics(app as unknown as FastifyInstance, metrics);
  const gateway = new Gateway(parts);
  for (const routes of [
    rolloutRoutes,
    trajectoryRoutes,
    conversationRoutes,
    groupRoutes,
    batchRoutes,
    poolRoutes,
    operationRoutes,
    processRoutes,
    pageDataRoutes,
  ])
    routes(app as unknown as App, gateway);
  await pageRoutes(app as unknown as App);
  return app as unknown as App;
}
