import { createHash, randomUUID } from 'node:crypto';
import { z } from 'zod';
import { CancelReason, RolloutId, RolloutRequest } from '../../contracts/request.ts';
import { RolloutResult } from '../../contracts/result.ts';
import { Selection, SweepReport } from '../../contracts/sweep.ts';
import { asAsked } from '../as-asked.ts';
import type { Routes } from '../gateway.ts';
import { HttpProblem, PROBLEMS, Problem } from '../problems.ts';
import { goneWith, Whose } from './submissions.ts';

/** A rollout as it is asked for; what is left out is as the gateway is configured. */
const Submission = z.object({
  ...asAsked(
    RolloutRequest.omit({ rolloutId: true, digest: true, task: true, reportTo: true, tenant: true }),
  ),
  task: RolloutRequest.shape.task,
  tenant: Whose,
  rolloutId: RolloutId.optional().describe('Makes the call idempotent, as the header Idempotency-Key does.'),
});

/** Where a rollout is that has not ended. */
const Open = z.object({ rolloutId: z.string(), done: z.literal(false), stage: z.string().nullable() });
const Ended = z.object({ rolloutId: z.string(), done: z.literal(true), record: RolloutResult });

const Listing = z.object({
  rolloutId: z.string(),
  handler: z.string().nullable(),
  stage: z.string().nullable(),
  outcome: z.string().nullable(),
  reward: z.number().nullable(),
  taskId: z.string().nullable(),
  groupId: z.string().nullable(),
  batchId: z.string().nullable(),
  host: z.string().nullable(),
  policyVersion: z.int().nullable(),
  startedAt: z.string(),
  closedAt: z.string().nullable(),
  workflowState: z.string(),
});

const Id = z.object({ rolloutId: RolloutId });
/** Seconds that a call may wait; proxies close what is silent for longer. */
const MOST_WAIT_SECONDS = 60;

/** Rollouts: begin, wait for, list, steer. */
export const rolloutRoutes: Routes = (app, gateway) => {
  app.post(
    '/v1/rollouts',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'Begin a rollout; it is durable when this answers',
        headers: z.object({ 'idempotency-key': z.string().min(1).max(200).optional() }),
        body: Submission,
        response: { ...PROBLEMS, 202: Open, 409: Problem },
      },
    },
    async (request, reply) => {
      const rolloutId = idOf(request.body.rolloutId, request.headers['idempotency-key']);
      const { rolloutId: _, tenant, ...asked } = request.body;
      await gateway.submit(rolloutId, asked, gateway.tenants.of(request.caller, tenant));
      return reply.code(202).send({ rolloutId, done: false as const, stage: 'queued' });
    },
  );

  app.get(
    '/v1/rollouts/:rolloutId',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'Where a rollout is, or its terminal record; `wait` seconds for that at most',
        params: Id,
        querystring: z.object({ wait: z.coerce.number().min(0).max(MOST_WAIT_SECONDS).default(0) }),
        response: { ...PROBLEMS, 200: z.union([Ended, Open]) },
      },
    },
    async ({ params: { rolloutId }, query: { wait } }, reply) => {
      const gone = goneWith(reply);
      const record = await gateway.record(rolloutId, wait * 1000, gone);
      // Nobody is there to be answered.
      if (gone.aborted) return reply.hijack() as never;
      if (record) return { rolloutId, done: true as const, record };
      return { rolloutId, done: false as const, stage: await gateway.client.stageOf(rolloutId) };
    },
  );

  app.get(
    '/v1/rollouts',
    {
      config: { scope: 'read' },
      schema: {
        summary:
          'Rollouts that match, open ones first, then the last that ended; one just begun may be missing',
        querystring: z.object({
          batchId: z.string().optional(),
          groupId: z.string().optional(),
          taskId: z.string().optional(),
          handler: z.string().optional().describe('Kind of task.'),
          text: z.string().min(1).max(200).optional().describe('What any of the ids begins with.'),
          stage: z.string().optional(),
          outcome: z.string().optional(),
          host: z.string().optional(),
          tenant: z.string().optional(),
          limit: z.coerce.number().int().min(1).max(1000).default(100),
          after: z.string().min(1).max(2000).optional().describe('What the page before gave as `next`.'),
        }),
        response: {
          ...PROBLEMS,
          200: z.object({ rollouts: z.array(Listing), next: z.string().nullable() }),
        },
      },
    },
    async ({ query: { limit, after, ...filter } }) => {
      const given = Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined));
      const page = { size: limit, ...(after === undefined ? {} : { after }) };
      return gateway.client.listPage(given, page);
    },
  );

  for (const action of ['pause', 'resume'] as const) {
    app.post(
      `/v1/rollouts/:rolloutId/${action}`,
      {
        config: { scope: 'write' },
        schema: {
          summary: `${action} a rollout`,
          params: Id,
          response: { ...PROBLEMS, 200: Open, 409: Problem },
        },
      },
      async ({ params: { rolloutId } }) => {
        const status = await gateway.client[action](rolloutId);
        if (!status) throw new HttpProblem(409, `rollout ${rolloutId} has ended`);
        return { rolloutId, done: false as const, stage: status.stage };
      },
    );
  }

  app.post(
    '/v1/rollouts/:rolloutId/cancel',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'End a rollout; harmless on one that has ended',
        params: Id,
        body: z.object({ reason: CancelReason.default('user') }).nullish(),
        response: { ...PROBLEMS, 202: Id },
      },
    },
    async ({ params, body }, reply) => {
      await gateway.cancel(params.rolloutId, body?.reason ?? 'user');
      return reply.code(202).send(params);
    },
  );

  app.post(
    '/v1/cancel',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'End all rollouts that match every part of a selection',
        body: z.object({ selection: Selection, reason: CancelReason.default('user') }),
        response: { ...PROBLEMS, 200: SweepReport },
      },
    },
    ({ body }) => gateway.client.cancelMany(body.selection, body.reason),
  );
  app.post(
    '/v1/cancel-stale',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'End all rollouts with a token of an older policy version than this',
        body: z.object({ belowVersion: z.int().min(0) }),
        response: { ...PROBLEMS, 200: SweepReport },
      },
    },
    async ({ body: { belowVersion } }) => (await gateway.client.raiseFloor(belowVersion)).sweep,
  );
};

/** @throws HttpProblem 422 if both are given and differ: what would the same key with another id be? */
function idOf(given: string | undefined, key: string | undefined): string {
  if (given !== undefined && key !== undefined && given !== key) {
    const detail = 'is not what the header Idempotency-Key says: give one of them';
    throw new HttpProblem(422, `body: /rolloutId ${detail}`, [{ field: '/rolloutId', detail }]);
  }
  if (given !== undefined) return given;
  if (key === undefined) return `http:${randomUUID()}`;
  // Any text is a key: one that cannot be an id has one made from it.
  return RolloutId.safeParse(key).success ? key : `http:${createHash('sha256').update(key).digest('hex')}`;
}
