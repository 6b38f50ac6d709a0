import { z } from 'zod';
import { asArray, streamTrajectory } from '../../activities/trajectory/trajectory-stream.ts';
import { RolloutId } from '../../contracts/request.ts';
import type { Routes } from '../gateway.ts';
import { HttpProblem, Problem } from '../problems.ts';

/** The trajectory of a rollout that has ended, as docs/trajectory.md says. */
export const trajectoryRoutes: Routes = (app, gateway) => {
  app.get(
    '/v1/rollouts/:rolloutId/trajectory',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'The trajectory: one JSON line per sequence, or an array if JSON is asked for',
        params: z.object({ rolloutId: RolloutId }),
        response: { 404: Problem, 409: Problem },
      },
    },
    async (request, reply) => {
      const { rolloutId } = request.params;
      const record = await gateway.record(rolloutId, 0);
      if (!record) throw new HttpProblem(409, `rollout ${rolloutId} has not ended`);
      const { trajectory } = record;
      if (!trajectory) throw new HttpProblem(404, `rollout ${rolloutId} ended before its first token`);
      const lines = await streamTrajectory(trajectory, gateway.store.archive);
      const asJson = /\bapplication\/json\b/.test(String(request.headers.accept));
      reply.header('ETag', `"${trajectory.sha256}"`);
      reply.header('Content-Length', asJson ? trajectory.bytes + 1 : trajectory.bytes);
      const type = asJson ? 'application/json' : 'application/jsonl';
      return reply.type(type).send((asJson ? asArray(lines) : lines) as never);
    },
  );
};
