import { createHash, randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { FastifyReply } from 'fastify';
import { stringify } from 'safe-stable-stringify';
import { z } from 'zod';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { requestDefaults } from '../../client/batch.ts';
import { readTasks } from '../../client/tasks-file.ts';
import type { BatchEvent, TaskSource } from '../../contracts/batch.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { GroupResult, RolloutTemplate } from '../../contracts/group.ts';
import { BatchRules, GroupId, GroupRules } from '../../contracts/group-rules.ts';
import { CancelReason, RolloutRequest } from '../../contracts/request.ts';
import { Task } from '../../contracts/task.ts';
import type { Gateway, Routes } from '../gateway.ts';
import { HttpProblem, PROBLEMS, Problem } from '../problems.ts';

/** What of a rollout may be other than configured; the same for all of a group. */
const Template = RolloutRequest.omit({
  rolloutId: true,
  task: true,
  sample: true,
  groupId: true,
  batchId: true,
  digest: true,
  reportTo: true,
}).partial();

const Source = z
  .object({
    tasks: z.array(Task).min(1).optional().describe('The tasks themselves.'),
    file: z.string().min(1).optional().describe('JSONL or Parquet, as the gateway’s machine sees it.'),
    handler: z.string().min(1).optional().describe('Of the file’s tasks.'),
    weight: z.number().gt(0).default(1).describe('How often it is drawn from, beside the others.'),
    domain: z.string().min(1).max(100).optional().describe('What it is called in counts.'),
  })
  .refine(
    ({ tasks, file, handler }) => (tasks === undefined) === (file !== undefined && handler !== undefined),
    {
      message: 'either tasks, or file and handler',
    },
  );

const Key = z.object({ 'idempotency-key': GroupId.optional() });
const GroupSubmission = z.object({
  groupId: GroupId.optional(),
  task: Task,
  ...GroupRules.shape,
  rollout: Template.default({}),
});
const BatchSubmission = z.object({
  batchId: GroupId.optional(),
  sources: z.array(Source).min(1).max(64),
  rules: BatchRules,
  group: GroupRules.prefault({}),
  rollout: Template.default({}),
});

const GroupAnswer = z.looseObject({ groupId: z.string(), done: z.boolean() });
const BatchAnswer = z.looseObject({ batchId: z.string(), done: z.boolean() });
const Wait = z.object({ wait: z.coerce.number().min(0).max(60).default(0) });
const Reason = z.object({ reason: CancelReason.default('user') }).nullish();

/** Groups and batches, as docs/batches.md says. */
export const batchRoutes: Routes = (app, gateway) => {
  const inGroup = z.object({ groupId: GroupId });
  const inBatch = z.object({ batchId: GroupId });

  app.post(
    '/v1/groups',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'Begin several rollouts of one task; durable when this answers',
        headers: Key,
        body: GroupSubmission,
        response: { ...PROBLEMS, 202: GroupAnswer, 409: Problem },
      },
    },
    async ({ body, headers }, reply) => {
      const { groupId: given, task, rollout, ...rules } = body;
      const groupId = given ?? headers['idempotency-key'] ?? randomUUID();
      gateway.handlers.open(task);
      const { set } = await gateway.groupStore.putTasks([task]);
      const digest = digestOf({ task, rollout, rules });
      const input = { groupId, task: { set, row: 0 }, rules, template: template(gateway, rollout), digest };
      sameOr409(await gateway.groups.startGroup(input), digest, `group ${groupId}`);
      return reply.code(202).send({ groupId, done: false });
    },
  );
  app.get(
    '/v1/groups/:groupId',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'How a group stands, or its result; `wait` seconds for that at most',
        params: inGroup,
        querystring: Wait,
        response: { ...PROBLEMS, 200: GroupAnswer },
      },
    },
    async (request, reply) => {
      const { groupId } = request.params;
      const signal = goneWith(reply as never);
      const look = async () => gateway.groupStore.getGroup(groupId);
      const result = await gateway.groups.within(request.query.wait * 1000, look, signal);
      if (result) return { ...result, done: true };
      return { ...(await known(gateway.groups.group(groupId), `group ${groupId}`)), done: false };
    },
  );
  for (const action of ['pause', 'resume'] as const) {
    app.post(
      `/v1/groups/:groupId/${action}`,
      {
        config: { scope: 'write' },
        schema: {
          summary: `${action} the open rollouts`,
          params: inGroup,
          response: { ...PROBLEMS, 202: inGroup },
        },
      },
      async ({ params }, reply) => {
        await known(gateway.groups.pauseGroup(params.groupId, action === 'pause'), `group ${params.groupId}`);
        return reply.code(202).send(params);
      },
    );
  }
  app.post(
    '/v1/groups/:groupId/cancel',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'End a group',
        params: inGroup,
        body: Reason,
        response: { ...PROBLEMS, 202: inGroup },
      },
    },
    async ({ params, body }, reply) => {
      await known(
        gateway.groups.cancel('group', params.groupId, body?.reason ?? 'user'),
        `group ${params.groupId}`,
      );
      return reply.code(202).send(params);
    },
  );

  app.post(
    '/v1/batches',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'Begin a batch of groups; durable when this answers',
        headers: Key,
        body: BatchSubmission,
        response: { ...PROBLEMS, 202: BatchAnswer, 409: Problem },
      },
    },
    async ({ body, headers }, reply) => {
      const { batchId: given, sources, rules, group, rollout } = body;
      const batchId = given ?? headers['idempotency-key'] ?? randomUUID();
      const drawn = await Promise.all(sources.map((source) => sourceOf(gateway, source)));
      const digest = digestOf({ sources: drawn, rules, group, rollout });
      const input = { batchId, sources: drawn, rules, group, template: template(gateway, rollout), digest };
      sameOr409(await gateway.groups.startBatch(input), digest, `batch ${batchId}`);
      return reply.code(202).send({ batchId, done: false });
    },
  );
  app.get(
    '/v1/batches/:batchId',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'How a batch stands, or its result; `wait` seconds for that at most',
        params: inBatch,
        querystring: Wait,
        response: { ...PROBLEMS, 200: BatchAnswer },
      },
    },
    async (request, reply) => {
      const { batchId } = request.params;
      const look = () => gateway.groups.batchResult(batchId);
      const result = await gateway.groups.within(request.query.wait * 1000, look, goneWith(reply as never));
      if (result) return { ...result, done: true };
      return { ...(await known(gateway.groups.batchStatus(batchId), `batch ${batchId}`)), done: false };
    },
  );
  app.get(
    '/v1/batches/:batchId/groups',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'Groups of the batch as JSON lines, each as soon as it is one, until the batch has ended',
        params: inBatch,
        querystring: z.object({
          trajectories: z.stringbool().default(false).describe('With the trajectories of each sample.'),
        }),
        response: { 404: Problem },
      },
    },
    async (request, reply) => {
      const { batchId } = request.params;
      if (!(await gateway.groups.batchResult(batchId))) {
        await known(gateway.groups.batchStatus(batchId), `batch ${batchId}`);
      }
      const signal = goneWith(reply as never);
      async function* lines() {
        for await (const group of gateway.groups.batchGroups(batchId, signal)) {
          const whole = request.query.trajectories ? await withTrajectories(gateway, group) : group;
          yield `${JSON.stringify(whole)}\n`;
        }
      }
      return reply.type('application/jsonl').send(Readable.from(lines()) as never);
    },
  );
  app.get(
    '/v1/batches/:batchId/events',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'What happens in a batch, as server-sent events; goes on after Last-Event-ID',
        params: inBatch,
        headers: z.object({ 'last-event-id': z.coerce.number().int().min(0).optional() }),
        response: { 404: Problem },
      },
    },
    async (request, reply) => {
      const { batchId } = request.params;
      const signal = goneWith(reply as never);
      let after = request.headers['last-event-id'] ?? 0;
      const next = async () => {
        const events = await known(gateway.groups.batchEvents(batchId, after), `batch ${batchId}`);
        after = events.at(-1)?.number ?? after;
        return events;
      };
      let events: BatchEvent[] = await next();
      async function* lines() {
        for (;;) {
          for (const { number, kind, ...rest } of events) {
            yield `id: ${number}\nevent: ${kind}\ndata: ${JSON.stringify(rest)}\n\n`;
          }
          if (events.at(-1)?.kind === 'ended') return;
          const some = async () => {
            const more = await next();
            return more.length > 0 ? more : undefined;
          };
          events = (await gateway.groups.within(15_000, some, signal)) ?? [];
          if (signal.aborted) return;
          // So that proxies see that it lives.
          if (events.length === 0) yield ': nothing new\n\n';
        }
      }
      reply.header('Cache-Control', 'no-store');
      return reply.type('text/event-stream').send(Readable.from(lines()) as never);
    },
  );
  app.post(
    '/v1/batches/:batchId/cancel',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'End a batch',
        params: inBatch,
        body: Reason,
        response: { ...PROBLEMS, 202: inBatch },
      },
    },
    async ({ params, body }, reply) => {
      await known(
        gateway.groups.cancel('batch', params.batchId, body?.reason ?? 'user'),
        `batch ${params.batchId}`,
      );
      return reply.code(202).send(params);
    },
  );
};

/** A source with its tasks checked and kept. @throws RolloutError InvalidTask naming the first that is wrong */
async function sourceOf(gateway: Gateway, source: z.infer<typeof Source>): Promise<TaskSource> {
  const tasks: Task[] = [];
  if (source.tasks) {
    for (const task of source.tasks) {
      gateway.handlers.open(task);
      tasks.push(task);
    }
  } else {
    const bad = (line: { file: string; line: number; problem: string }) => {
      throw new RolloutError('InvalidTask', `${line.file}, line ${line.line}: ${line.problem}`);
    };
    const { file = '', handler = '' } = source;
    for await (const task of readTasks(file, handler, gateway.handlers, bad)) tasks.push(task);
  }
  const { weight, domain = tasks[0]?.handler ?? 'none' } = source;
  return { ...(await gateway.groupStore.putTasks(tasks)), weight, domain };
}

function template(gateway: Gateway, asked: z.infer<typeof Template>): RolloutTemplate {
  const {
    rolloutId: _,
    task: __,
    sample: ___,
    ...rest
  } = RolloutRequest.parse({
    ...requestDefaults(gateway.config),
    ...asked,
    rolloutId: 'template',
    task: { handler: 'template', id: 'template', data: {} },
  });
  return rest;
}

/** A group's samples with their trajectories, where they have any. */
async function withTrajectories(gateway: Gateway, group: GroupResult): Promise<object> {
  const samples = await Promise.all(
    group.samples.map(async (sample) => {
      const record = await gateway.record(sample.rolloutId, 0);
      return { ...sample, trajectories: record?.trajectory ? await readTrajectory(record.trajectory) : [] };
    }),
  );
  return { ...group, samples };
}

const digestOf = (asked: unknown) =>
  createHash('sha256')
    .update(stringify(asked) ?? '')
    .digest('hex');

function sameOr409(
  known: { isNew: boolean; digest: string | undefined },
  digest: string,
  what: string,
): void {
  if (!known.isNew && known.digest !== digest)
    throw new HttpProblem(409, `${what} was begun with another request`);
}

async function known<T>(asking: Promise<T>, what: string): Promise<T> {
  try {
    return await asking;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) throw new HttpProblem(404, `there is no ${what}`);
    throw error;
  }
}

/** Aborted when the answer is sent or the caller hangs up. */
function goneWith(reply: Pick<FastifyReply, 'raw'>): AbortSignal {
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  return gone.signal;
}
