import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { digestOf } from '../../client/submission.ts';
import { FITS, GroupId, GroupRules } from '../../contracts/group-rules.ts';
import { Task } from '../../contracts/task.ts';
import type { Routes } from '../gateway.ts';
import { PROBLEMS, Problem } from '../problems.ts';
import { goneWith, Key, known, Reason, sameOr409, Template, templateOf, Wait, Whose } from './submissions.ts';

const GroupSubmission = z
  .object({
    groupId: GroupId.optional(),
    task: Task,
    ...GroupRules.shape,
    rollout: Template.default({}),
    tenant: Whose,
  })
  .refine(FITS.check, FITS.says);
const GroupAnswer = z.looseObject({ groupId: z.string(), done: z.boolean() });

/** Groups, as docs/batches.md says. */
export const groupRoutes: Routes = (app, gateway) => {
  const inGroup = z.object({ groupId: GroupId });

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
    async ({ body, headers, caller }, reply) => {
      const { groupId: given, task, rollout, tenant: asked, ...rules } = body;
      const groupId = given ?? headers['idempotency-key'] ?? randomUUID();
      gateway.checkTask(task);
      const tenant = gateway.tenants.of(caller, asked);
      const { set } = await gateway.groupStore.putTasks([task]);
      const digest = digestOf({ task, rollout, rules });
      const template = templateOf(gateway, rollout, tenant);
      const input = { groupId, task: { set, row: 0 }, rules, template, digest };
      const begun = await gateway.tenants.admit(tenant, rules.samples, () =>
        gateway.groups.isKnown('group', groupId),
      );
      sameOr409(await gateway.groups.startGroup(input).finally(begun), digest, `group ${groupId}`);
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
      const signal = goneWith(reply);
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
};
