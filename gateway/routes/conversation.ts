import { z } from 'zod';
import { Following } from '../../client/following.ts';
import { RolloutId } from '../../contracts/request.ts';
import type { Routes } from '../gateway.ts';
import { HttpProblem, Problem } from '../problems.ts';

/** The conversation of a rollout that goes on: what a trajectory has, up to now. */
export const conversationRoutes: Routes = (app, { client, store }) => {
  const following = new Following(client, store);

  app.get(
    '/v1/rollouts/:rolloutId/conversation',
    {
      config: { scope: 'read' },
      schema: {
        summary:
          'What an open rollout has recorded so far, in the form of its trajectory; 304 if that is nothing new',
        params: z.object({ rolloutId: RolloutId }),
        response: { 404: Problem, 409: Problem, 503: Problem },
      },
    },
    async (request, reply) => {
      const { rolloutId } = request.params;
      const soFar = await following.read(rolloutId);
      if (!soFar) throw new HttpProblem(409, `rollout ${rolloutId} has ended: its trajectory has all of it`);
      const { attempt, workflowRunId, records } = soFar;
      const tag = `"${workflowRunId}-${attempt}-${records}"`;
      reply.header('ETag', tag).header('Cache-Control', 'private, no-cache');
      if (request.headers['if-none-match'] === tag) return reply.code(304 as never).send(undefined as never);
      const sequences = soFar.sequences().map((sequence, index) => ({
        rollout_id: rolloutId,
        attempt,
        sequence_index: index,
        ...sequence,
      }));
      const body = JSON.stringify({ attempt, records, sequences });
      return reply.type('application/json').send(body as never);
    },
  );
};
