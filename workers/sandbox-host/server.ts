import { randomBytes, timingSafeEqual } from 'node:crypto';
import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type FastifyError, type FastifyInstance, type FastifyReply, fastify } from 'fastify';
import { type FailureType, messageOf, RolloutError } from '../../contracts/failures.ts';
import { working } from '../work-context.ts';
import { SandboxHost } from './host.ts';
import type { SandboxHostOptions } from './options.ts';
import { addRoutes } from './routes.ts';

/** Largest request: a file of 64 MiB in base64, and the rest. */
const MAX_BODY_BYTES = 96 * 1024 ** 2;
/** Longer than clients keep an idle connection, so that none is closed under a request. */
const KEEP_ALIVE_MS = 10 * 60_000;

/** Status of each failure; 500 for those that are not listed. */
const STATUS: Partial<Record<FailureType, number>> = {
  InvalidRequest: 400,
  FenceRefused: 409,
  StoreCorrupt: 409,
  SandboxLost: 410,
  HandlerFailed: 422,
  SandboxFailed: 503,
  ProgramMissing: 501,
  LedgerFailed: 507,
  StoreFailed: 507,
};

/** A sandbox host that answers on its socket. */
export interface RunningSandboxHost {
  readonly host: SandboxHost;
  readonly socketPath: string;
  readonly token: string;
  /** Ends all sandboxes, then the socket. Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts the host of this machine: a folder and a socket for its user alone, and a token that every call must
 * carry.
 * @throws RolloutError SandboxUnavailable with what to do about it
 */
export async function startSandboxHost(options: SandboxHostOptions): Promise<RunningSandboxHost> {
  const host = await SandboxHost.start(options);
  const { socket, token: tokenFile } = host.paths;
  try {
    const token = ownToken(tokenFile);
    const server = makeServer(host, token);
    rmSync(socket, { force: true }); // an earlier host that was killed leaves it behind
    await server.listen({ path: socket });
    chmodSync(socket, 0o600);
    let closing: Promise<void> | undefined;
    const close = async (): Promise<void> => {
      await host.close();
      server.server.closeAllConnections();
      await server.close();
    };
    return {
      host,
      socketPath: socket,
      token,
      close: () => {
        closing ??= close();
        return closing;
      },
    };
  } catch (error) {
    await host.close();
    throw error;
  }
}

/** The token of earlier starts, so that workers need not read it anew; made if there is none. */
function ownToken(file: string): string {
  try {
    const known = readFileSync(file, 'utf8').trim();
    if (/^[0-9a-f]{64}$/.test(known)) return known;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const token = randomBytes(32).toString('hex');
  writeFileSync(file, `${token}\n`, { mode: 0o600 });
  return token;
}

function makeServer(host: SandboxHost, token: string): FastifyInstance {
  const server = fastify({
    bodyLimit: MAX_BODY_BYTES,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // Node closes connections on which no request has come for a minute: a worker may stand still for longer right
    // after it has opened one, and nobody else can open any.
    http: { headersTimeout: 0 },
    forceCloseConnections: true,
    // What a model named its arguments is data; schemas say which names count.
    onProtoPoisoning: 'ignore',
    onConstructorPoisoning: 'ignore',
    logger: false,
    // A path that no call can have, which is found before any call.
    frameworkErrors: (error, _request, reply) => {
      const answer = { type: 'InvalidRequest', message: messageOf(error) };
      (reply as unknown as FastifyReply).code(error.statusCode ?? 400).send(answer);
    },
  });
  const expected = Buffer.from(`Bearer ${token}`);
  server.addHook('onRequest', (request, reply, done) => {
    const given = Buffer.from(request.headers.authorization ?? '');
    // The length of a token is no secret.
    if (given.length === expected.length && timingSafeEqual(given, expected)) return done();
    reply.code(401).send({ type: 'HostUnreachable', message: 'the token is not that of this host' });
  });
  server.setErrorHandler((error: FastifyError | RolloutError, request, reply) => {
    const known = error instanceof RolloutError;
    if (!known && (error.statusCode ?? 500) < 500) {
      return reply.code(error.statusCode ?? 400).send({ type: 'InvalidRequest', message: messageOf(error) });
    }
    const type: FailureType = known ? error.type : 'Internal';
    if (!known || STATUS[type] === undefined) {
      host.options.logger.error({ err: error, call: request.url }, 'a call failed');
    }
    return reply.code(STATUS[type] ?? 500).send({ type, message: messageOf(error) });
  });
  server.setNotFoundHandler((request, reply) =>
    reply
      .code(404)
      .send({ type: 'InvalidRequest', message: `no such call: ${request.method} ${request.url}` }),
  );
  // What the host says while it serves a call says of which rollout.
  server.addHook('preHandler', (request, _reply, done) => {
    const { id } = (request.params ?? {}) as { readonly id?: string };
    working((id === undefined ? undefined : host.ownerOf(id)) ?? {}, done);
  });
  host.options.observe?.(server, host);
  addRoutes(server, host);
  return server;
}
