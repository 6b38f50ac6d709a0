import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { EndpointAnswer, OpenEndpoint } from '../../contracts/endpoint.ts';
import { RolloutError } from '../../contracts/failures.ts';
import {
  AbortSandbox,
  AppendLedger,
  AttachSandbox,
  CreateSandbox,
  Drain,
  ExecRequest,
  FencedRequest,
  PauseSandbox,
  ReadAttemptLedger,
  ReadFile,
  ShellRequest,
  WriteFile,
} from '../../contracts/sandbox.ts';
import { AbortMany } from '../../contracts/sweep.ts';
import { DiffWorkspace, MarkStart, RestoreWorkspace, SnapshotWorkspace } from '../../contracts/workspace.ts';
import type { SandboxHost } from './host.ts';

/** How often a watch that has nothing to say shows that the host lives, in milliseconds. */
const ALIVE_MS = 5000;

const Id = z.object({ id: z.string().max(100) });
const ShellName = Id.extend({ name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/) });
const Release = z.object({ fence: z.coerce.number().int().min(1).optional() });
const Watch = z.object({
  fence: z.coerce.number().int().min(1),
  paused: z.enum(['true', 'false']).default('false'),
});

/** The calls of contracts/sandbox.ts, each checked by its schema and handed to the host. */
export function addRoutes(server: FastifyInstance, host: SandboxHost): void {
  const sandboxOf = (request: FastifyRequest) => host.get(parse(Id, request.params).id);

  server.post('/v1/sandboxes', (request, reply) =>
    host.create(parse(CreateSandbox, request.body), whileConnected(reply)),
  );
  server.post('/v1/abort', async (request) => {
    const { selection, reason } = parse(AbortMany, request.body);
    return host.abortMany(selection, reason);
  });
  server.get('/v1/stats', async () => host.stats());
  server.post('/v1/drain', async (request) => {
    host.draining = parse(Drain, request.body).draining;
    return host.drained();
  });
  server.delete('/v1/sandboxes/:id', (request) =>
    host.release(parse(Id, request.params).id, parse(Release, request.query).fence),
  );
  server.post('/v1/sandboxes/:id/attach', (request) =>
    host.attach(parse(Id, request.params).id, parse(AttachSandbox, request.body)),
  );
  server.post('/v1/sandboxes/:id/abort', async (request) => {
    sandboxOf(request).abort(parse(AbortSandbox, request.body).reason);
    return {};
  });
  server.post('/v1/sandboxes/:id/pause', async (request) => {
    sandboxOf(request).pause(parse(PauseSandbox, request.body).entry);
    return {};
  });
  server.post('/v1/sandboxes/:id/kill', async (request) => {
    const started = performance.now();
    const processesKilled = await sandboxOf(request).heldBy(parse(FencedRequest, request.body).fence).kill();
    return { processesKilled, ms: performance.now() - started };
  });
  server.get('/v1/sandboxes/:id/watch', (request, reply) =>
    watch(reply, (signal) => {
      const { fence, paused } = parse(Watch, request.query);
      return sandboxOf(request).watch({ fence, knowsPause: paused === 'true' }, signal);
    }),
  );

  server.post('/v1/sandboxes/:id/exec', (request, reply) => {
    const { fence, stdin, ...program } = parse(ExecRequest, request.body);
    const input = stdin === undefined ? null : Buffer.from(stdin, 'base64');
    const commands = sandboxOf(request).heldBy(fence);
    return commands.exec({ cwd: undefined, ...program, stdin: input }, whileConnected(reply));
  });
  server.post('/v1/sandboxes/:id/shells/:name/run', (request) => {
    const { fence, callId, ...command } = parse(ShellRequest, request.body);
    const { name } = parse(ShellName, request.params);
    return sandboxOf(request).heldBy(fence).runShell(name, callId, command);
  });
  server.post('/v1/sandboxes/:id/shells/:name/interrupt', async (request) => {
    const { fence } = parse(FencedRequest, request.body);
    sandboxOf(request).heldBy(fence).interruptShell(parse(ShellName, request.params).name);
    return {};
  });
  server.post('/v1/sandboxes/:id/shells/:name/close', async (request) => {
    const { fence } = parse(FencedRequest, request.body);
    await sandboxOf(request).heldBy(fence).closeShell(parse(ShellName, request.params).name);
    return {};
  });

  server.post('/v1/sandboxes/:id/files', async (request) => {
    const { fence, content, ...file } = parse(WriteFile, request.body);
    await sandboxOf(request)
      .heldBy(fence)
      .writeFile({ ...file, content: Buffer.from(content, 'base64') });
    return {};
  });
  server.post('/v1/sandboxes/:id/files/read', async (request) => {
    const { fence, ...file } = parse(ReadFile, request.body);
    const { content, totalBytes } = await sandboxOf(request).heldBy(fence).readFile(file);
    return { content: content.toString('base64'), totalBytes };
  });

  server.post('/v1/sandboxes/:id/workspace/start', (request) => {
    const { fence, ...asked } = parse(MarkStart, request.body);
    const commands = sandboxOf(request).heldBy(fence);
    return commands.onWorkspace((workspace, signal) => workspace.markStart(asked, signal));
  });
  server.post('/v1/sandboxes/:id/workspace/diff', (request) => {
    const { fence, ...asked } = parse(DiffWorkspace, request.body);
    const commands = sandboxOf(request).heldBy(fence);
    return commands.onWorkspace((workspace, signal) => workspace.diff(asked, signal));
  });
  server.post('/v1/sandboxes/:id/workspace/snapshot', (request) => {
    const { fence, ...asked } = parse(SnapshotWorkspace, request.body);
    const commands = sandboxOf(request).heldBy(fence);
    return commands.onWorkspace((workspace, signal) => workspace.snapshot(asked, signal));
  });
  server.post('/v1/sandboxes/:id/workspace/restore', (request) => {
    const { fence, ...asked } = parse(RestoreWorkspace, request.body);
    return sandboxOf(request).heldBy(fence).restore(asked);
  });

  server.post('/v1/sandboxes/:id/endpoint', async (request) => {
    const { fence, model } = parse(OpenEndpoint, request.body);
    return { socketPath: await sandboxOf(request).openEndpoint(fence, model) };
  });
  server.post('/v1/sandboxes/:id/endpoint/next', async (request, reply) => {
    const { fence } = parse(FencedRequest, request.body);
    const sandbox = sandboxOf(request);
    const event = await (await sandbox.endpointFor(fence)).next(whileConnected(reply));
    if (!event) sandbox.check(fence); // taken over
    return { event };
  });
  server.post('/v1/sandboxes/:id/endpoint/answer', async (request) => {
    const { fence, ...answer } = parse(EndpointAnswer, request.body);
    return { delivered: await (await sandboxOf(request).endpointFor(fence)).answer(answer) };
  });

  server.post('/v1/sandboxes/:id/ledger', async (request) => {
    const { fence, seq, record } = parse(AppendLedger, request.body);
    await sandboxOf(request).appendLedger(fence, seq, record);
    return {};
  });
  server.post('/v1/ledgers/read', (request) => host.recorded(parse(ReadAttemptLedger, request.body)));
  server.get('/v1/sandboxes/:id/ledger', (request) => sandboxOf(request).readLedger());
}

/** @throws RolloutError InvalidRequest naming each field */
function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new RolloutError('InvalidRequest', z.prettifyError(parsed.error));
}

/** Aborted when the caller goes away before the answer. */
function whileConnected(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  return gone.signal;
}

async function watch(
  reply: FastifyReply,
  wait: (signal: AbortSignal) => Promise<unknown>,
): Promise<FastifyReply> {
  const event = wait(whileConnected(reply)); // throws before anything is sent
  reply.hijack();
  reply.raw.writeHead(200, { 'content-type': 'application/x-ndjson' });
  reply.raw.write('\n');
  const alive = setInterval(() => reply.raw.write('\n'), ALIVE_MS);
  try {
    const told = await event;
    reply.raw.end(told === null ? '' : `${JSON.stringify(told)}\n`);
  } finally {
    clearInterval(alive);
  }
  return reply;
}
