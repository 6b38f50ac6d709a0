import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { z } from 'zod';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { digestOf } from '../../client/submission.ts';
import type { BatchEvent } from '../../contracts/batch.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { GroupResult } from '../../contracts/group.ts';
import { BatchRules, GroupId, GroupRules } from '../../contracts/group-rules.ts';
import type { Gateway, Routes } from '../gateway.ts';
import { HttpProblem, PROBLEMS, Problem } from '../problems.ts';
import {
  goneWith,
  Key,
  known,
  Reason,
  Source,
  sameOr409,
  sourceOf,
  Template,
  templateOf,
  Wait,
  Whose,
} from './submissions.ts';

const BatchSubmission = z.object({
  batchId: GroupId.optional(),
  sources: z.array(Source).min(1).max(64),
  rules: BatchRules,
  group: GroupRules.prefault({}),
  rollout: Template.default({}),
  tenant: Whose,
});

const BatchAnswer = z.looseObject({ batchId: z.string(), done: z.boolean() });

const Listing = z.object({
  batchId: z.string(),
  workflowState: z.string(),
  startedAt: z.string(),
  closedAt: z.string().nullable(),
});

/** Batches, as docs/batches.md says. */
export const batchRoutes: Routes = (app, gateway) => {
  const inBatch = z.object({ batchId: GroupId });

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
    async ({ body, headers, caller }, reply) => {
      const { batchId: given, sources, rules, group, rollout, tenant: asked } = body;
      const batchId = given ?? headers['idempotency-key'] ?? randomUUID();
      if (rules.carryFrom === batchId) {
        const detail = 'a batch cannot wait for its own end';
        throw new HttpProblem(422, `/rules/carryFrom: ${detail}`, [{ field: '/rules/carryFrom', detail }]);
      }
      const tenant = gateway.tenants.of(caller, asked);
      const drawn = await Promise.all(
        sources.map((source, at) => sourceOf(gateway, caller, source, `/sources/${at}`)),
      );
      const digest = digestOf({ sources: drawn, rules, group, rollout });
      const template = templateOf(gateway, rollout, tenant);
      const input = { batchId, sources: drawn, rules, group, template, digest };
      // What it begins later is counted, and not refused: that it cannot be, in the middle.
      const begun = await gateway.tenants.admit(tenant, 1, () => gateway.groups.isKnown('batch', batchId));
      sameOr409(await gateway.groups.startBatch(input).finally(begun), digest, `batch ${batchId}`);
      return reply.code(202).send({ batchId, done: false });
    },
  );
  app.get(
    '/v1/batches',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'Batches, open ones first, then the last that ended',
        querystring: z.object({ limit: z.coerce.number().int().min(1).max(1000).default(100) }),
        response: { ...PROBLEMS, 200: z.object({ batches: z.array(Listing) }) },
      },
    },
    async ({ query }) => ({ batches: await gateway.groups.batches(query.limit) }),
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
      const result = await gateway.groups.within(request.query.wait * 1000, look, goneWith(reply));
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
          after: z.coerce.number().int().min(0).default(0).describe('Groups that the reader has already.'),
        }),
        response: { 404: Problem },
      },
    },
    async (request, reply) => {
      const { batchId } = request.params;
      if (!(await gateway.groups.batchResult(batchId))) {
        await known(gateway.groups.batchStatus(batchId), `batch ${batchId}`);
      }
      const { trajectories, after } = request.query;
      const signal = goneWith(reply);
      async function* lines() {
        for await (const group of gateway.groups.batchGroups(batchId, after, signal)) {
          const whole = trajectories ? await withTrajectories(gateway, group) : group;
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
        response: { 204: z.undefined(), 404: Problem },
      },
    },
    async (request, reply) => {
      const { batchId } = request.params;
      const signal = goneWith(reply);
      let after = request.headers['last-event-id'] ?? 0;
      const next = async () => {
        const events = await known(gateway.groups.batchEvents(batchId, after), `batch ${batchId}`);
        after = events.at(-1)?.number ?? after;
        return events;
      };
      const ended = await gateway.groups.batchResult(batchId);
      let events: BatchEvent[] = await next().catch((error: unknown) => {
        // Its groups are kept for longer than its events.
        if (ended && error instanceof HttpProblem && error.status === 404) return [];
        throw error;
      });
      // Nothing comes any more, and readers of streams come back until they are told so.
      if (ended && events.length === 0) return reply.code(204).send(undefined as never);
      const mustEnd = () => gateway.groups.batchStatus(batchId);
      if (!ended) await mustEnd();
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
          if (events.length > 0) continue;
          await mustEnd();
          // So that proxies see that it lives.
          yield ': nothing new\n\n';
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

/**
 * A group's samples with their trajectories, where they have any. From the store: a rollout that has just told its group
 * of its end may still be open. @throws RolloutError StoreCorrupt
 */
async function withTrajectories(gateway: Gateway, group: GroupResult): Promise<object> {
  const samples = await Promise.all(
    group.samples.map(async (sample) => {
      const record = await gateway.store.getTerminal(sample.rolloutId);
      if (sample.reward !== null && !record?.trajectory) {
        throw new RolloutError('StoreCorrupt', `${sample.rolloutId} has a reward and no trajectory`);
      }
      const { archive } = gateway.store;
      const trajectories = record?.trajectory ? await readTrajectory(record.trajectory, archive) : [];
      return { ...sample, trajectories };
    }),
  );
  return { ...group, samples };
}
