import { z } from 'zod';
import { recordedSequence } from '../../activities/trajectory/assemble.ts';
import { sequencesOf } from '../../activities/trajectory/sequences.ts';
import { RolloutId } from '../../contracts/request.ts';
import { Following } from '../follow.ts';
import type { Routes } from '../gateway.ts';
import { Problem } from '../problems.ts';

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
      const { key, records } = await following.read(request.params.rolloutId);
      const { attempt, workflowRunId } = key;
      const tag = `"${workflowRunId}-${attempt}-${records.length}"`;
      reply.header('ETag', tag).header('Cache-Control', 'private, no-cache');
      if (request.headers['if-none-match'] === tag) return reply.code(304 as never).send(undefined as never);
      const sequences = sequencesOf(records).map((own, index) => ({
        rollout_id: key.rolloutId,
        attempt,
        sequence_index: index,
        ...recordedSequence(own),
      }));
      const body = JSON.stringify({ attempt, records: records.length, sequences });
      return reply.type('application/json').send(body as never);
    },
  );
};
