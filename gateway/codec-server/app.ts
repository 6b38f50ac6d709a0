import cors from '@fastify/cors';
import type { Payload, PayloadCodec } from '@temporalio/common';
import Fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify';
import { serializerCompiler, validatorCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { protect, type Tokens } from '../auth.ts';
import { answerProblems, HttpProblem } from '../problems.ts';

/** A page of a history's events at once; the server's own bound on one payload is 2 MB. */
const BODY_BYTES = 32 * 1024 ** 2;

/**
 * Payloads as protobuf's JSON has them, bytes in base64.
 * @see https://docs.temporal.io/codec-server — what the Temporal UI and CLI send and expect
 */
const Payloads = z.object({
  payloads: z.array(
    z.object({
      metadata: z.record(z.string(), z.base64()).default({}),
      data: z.base64().default(''),
    }),
  ),
});
type Payloads = z.infer<typeof Payloads>;

/** What a codec server is made with. */
export interface CodecServerOptions {
  readonly codec: PayloadCodec;
  /** Of the pages that may ask; requests of any other page are refused. */
  readonly origins: readonly string[];
  readonly tokens: Tokens | undefined;
  readonly log: FastifyBaseLogger;
}

/** Opens and encrypts payloads for those who look at Temporal from outside: `POST /decode`, `/encode`. */
export async function makeCodecServer({ codec, ...options }: CodecServerOptions): Promise<FastifyInstance> {
  const app = Fastify({
    loggerInstance: options.log,
    bodyLimit: BODY_BYTES,
  }).withTypeProvider<ZodTypeProvider>();
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  answerProblems(app);
  const origins = options.origins.map((origin) => new URL(origin).origin);
  // A browser sends any page's requests to the loopback too: what it may not read it must not be answered either.
  app.addHook('onRequest', async ({ headers: { origin } }) => {
    if (origin !== undefined && !origins.includes(origin)) {
      throw new HttpProblem(403, `pages of ${origin} may not ask: codecServer.origins names those that may`);
    }
  });
  await app.register(cors, {
    origin: origins,
    methods: ['POST'],
    allowedHeaders: ['authorization', 'content-type', 'x-namespace'],
    credentials: true,
  });
  protect(app, options.tokens);
  const calls = { '/decode': ['read', codec.decode], '/encode': ['write', codec.encode] } as const;
  for (const [url, [scope, change]] of Object.entries(calls)) {
    app.post(url, { schema: { body: Payloads }, config: { scope } }, async ({ body }) => ({
      payloads: (await change.call(codec, body.payloads.map(fromJson))).map(toJson),
    }));
  }
  return app as unknown as FastifyInstance;
}

function fromJson({ metadata, data }: Payloads['payloads'][number]): Payload {
  const bytes = Object.entries(metadata).map(([name, text]) => [name, Buffer.from(text, 'base64')]);
  return { metadata: Object.fromEntries(bytes), data: Buffer.from(data, 'base64') };
}

function toJson({ metadata, data }: Payload): Payloads['payloads'][number] {
  const texts = Object.entries(metadata ?? {}).map(([name, bytes]) => [name, base64(bytes)]);
  return { metadata: Object.fromEntries(texts), data: base64(data ?? Buffer.of()) };
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64');
}
