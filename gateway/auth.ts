import { createHash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { Config } from '../config/load.ts';
import { RolloutError } from '../contracts/failures.ts';
import { type Scope, TokensFile } from '../contracts/gateway.ts';
import { problemsOf } from '../contracts/problems.ts';
import { HttpProblem } from './problems.ts';

/** Whose token it is, and what it may do. */
export interface Caller {
  readonly name: string;
  readonly scopes: readonly Scope[];
}

/** Who may do what. */
export interface Tokens {
  /** Undefined for a token that nobody has. Takes equally long for all of them. */
  find(token: string): Caller | undefined;
}

/** @throws RolloutError InvalidRequest naming the file and what is wrong in it */
export function readTokens(file: string): Tokens {
  let parsed: z.ZodSafeParseResult<TokensFile>;
  try {
    parsed = TokensFile.safeParse(JSON.parse(readFileSync(file, 'utf8')));
  } catch (error) {
    throw new RolloutError('InvalidRequest', `gateway.tokens: ${file}: ${(error as Error).message}`);
  }
  if (!parsed.success) {
    throw new RolloutError('InvalidRequest', `gateway.tokens: ${file}: ${problemsOf(parsed.error)}`);
  }
  const known = parsed.data.map(({ sha256, ...who }) => ({ hash: Buffer.from(sha256, 'hex'), who }));
  return {
    find(token) {
      const hash = createHash('sha256').update(token).digest();
      // All are compared, so that time tells nothing of which one is near.
      const matching = known.filter((each) => timingSafeEqual(each.hash, hash));
      return matching[0]?.who;
    },
  };
}

const LOOPBACK = /^(127\.|localhost$|::1$)/;

/**
 * The configured tokens; undefined where everybody may do all, which is right for the loopback address only.
 * @throws RolloutError InvalidRequest if there are none and `address`, of that setting, is another one
 */
export function tokensFor(config: Config, setting: string, address: string): Tokens | undefined {
  const { tokens: file } = config.gateway;
  if (file !== undefined) return readTokens(file);
  if (LOOPBACK.test(address)) return undefined;
  throw new RolloutError(
    'InvalidRequest',
    `${setting} ${address} is open to others: set gateway.tokens, a file that "rollouts token" adds to`,
  );
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** What a caller needs for this route; absent: nothing. */
    scope?: Scope;
  }
  interface FastifyRequest {
    /** Undefined where no token is needed. */
    caller: Caller | undefined;
  }
}

/** Lets only those in whose token has the scope of the route. Without `tokens` everybody may do everything. */
export function protect(app: FastifyInstance, tokens: Tokens | undefined): void {
  app.decorateRequest('caller', undefined);
  if (!tokens) return;
  app.addHook('onRequest', async (request: FastifyRequest, reply) => {
    const { scope } = request.routeOptions.config;
    if (!scope) return;
    const [, token] = /^Bearer +([^ ]+) *$/i.exec(request.headers.authorization ?? '') ?? [];
    const who = token === undefined ? undefined : tokens.find(token);
    if (!who) {
      reply.header('WWW-Authenticate', 'Bearer');
      throw new HttpProblem(401, 'a token is needed: Authorization: Bearer <token>');
    }
    if (!who.scopes.includes(scope) && !who.scopes.includes('admin')) {
      throw new HttpProblem(403, `the token of ${who.name} has no scope ${scope}`);
    }
    request.caller = who;
  });
}
