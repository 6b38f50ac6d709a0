import { z } from 'zod';
import { timelineOf } from '../../client/timeline.ts';
import { FAILURES } from '../../contracts/failures.ts';
import { RolloutId } from '../../contracts/request.ts';
import { TokenIds } from '../../contracts/trajectory.ts';
import type { Routes } from '../gateway.ts';
import { HttpProblem, PROBLEMS } from '../problems.ts';
import { Tokenizers } from '../tokenizers.ts';

const Moment = z.string().nullable();

/** As client/timeline.ts says. */
const Timeline = z.object({
  workflowRunId: z.string(),
  workflowState: z.string(),
  startedAt: z.string(),
  closedAt: Moment,
  activities: z.array(
    z.object({
      activity: z.string(),
      queue: z.string(),
      scheduledAt: z.string(),
      startedAt: Moment,
      endedAt: Moment,
      end: z.enum(['completed', 'failed', 'timedOut', 'cancelled']).nullable(),
      worker: z.string().nullable(),
      failure: z.object({ type: z.string().nullable(), message: z.string() }).nullable(),
    }),
  ),
  marks: z.array(z.object({ at: z.string(), what: z.string() })),
  status: z.looseObject({ stage: z.string(), attempt: z.int() }).nullable(),
  position: z.looseObject({ turn: z.int(), tokens: z.int() }).nullable(),
});

const Service = z.object({
  namespace: z.string(),
  temporalUi: z.string().nullable(),
  pool: z.string(),
  handlers: z.array(z.string()),
  failures: z.record(
    z.string(),
    z.object({ stage: z.string(), cause: z.string(), retry: z.string(), advice: z.string() }),
  ),
});

/** Ids that are decoded in one call. */
const MOST_IDS = 20_000;

/** What people look at and trainers do not need: the rollout page is made from it. */
export const pageDataRoutes: Routes = (app, gateway) => {
  const { config, client, handlers } = gateway;
  const tokenizers = new Tokenizers(client, config.llm.servers);

  app.get(
    '/v1/service',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'What there is here: kinds of tasks, what each failure means, where the Temporal UI is',
        response: { ...PROBLEMS, 200: Service },
      },
    },
    () => ({
      namespace: config.temporal.namespace,
      temporalUi: config.temporal.uiUrl ?? null,
      pool: config.llm.pool,
      handlers: handlers.list().map(({ name }) => name),
      failures: FAILURES,
    }),
  );

  app.get(
    '/v1/rollouts/:rolloutId/timeline',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'When a rollout did what, and what it does now; as long as Temporal remembers it',
        params: z.object({ rolloutId: RolloutId }),
        response: { ...PROBLEMS, 200: Timeline },
      },
    },
    async ({ params }) => (await timelineOf(client.temporal, params.rolloutId)) as never,
  );

  app.post(
    '/v1/tokens/texts',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'Texts of tokens, one by one; of tokens that form a character together the first has it',
        body: z.object({
          tokenizerHash: z.string().max(100).describe('`model.tokenizer_hash` of the trajectory.'),
          ids: TokenIds.max(MOST_IDS),
        }),
        response: { ...PROBLEMS, 200: z.object({ texts: z.array(z.string()) }) },
      },
    },
    async ({ body: { tokenizerHash, ids } }) => {
      const tokenizer = await tokenizers.find(tokenizerHash);
      if (!tokenizer) {
        throw new HttpProblem(
          404,
          'no LLM server that is known here has the tokenizer that made these tokens',
        );
      }
      return { texts: await tokenizer.textsOf(ids, AbortSignal.timeout(30_000)) };
    },
  );
};
