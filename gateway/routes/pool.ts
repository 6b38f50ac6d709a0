import { z } from 'zod';
import { LlmServer } from '../../contracts/llm.ts';
import type { PoolReport, PoolState } from '../../contracts/pool.ts';
import {
  AddServer,
  DrainServer,
  LabelServer,
  RaiseFloor,
  RemoveServer,
  SwapWeights,
} from '../../contracts/pool-commands.ts';
import type { App, Routes } from '../gateway.ts';
import { HttpProblem, PROBLEMS } from '../problems.ts';
import { Key } from './submissions.ts';

const Pool = z.looseObject({
  pool: z.string(),
  epoch: z.int(),
  floor: z.int(),
  members: z.array(
    z.looseObject({
      server: LlmServer,
      labels: z.array(z.string()),
      state: z.enum(['active', 'draining', 'out']),
      why: z.string().nullable(),
    }),
  ),
});
const Report = z.object({
  state: Pool,
  failed: z.array(z.object({ url: z.string(), why: z.string() })),
  silent: z.array(z.string()),
  drained: z.boolean(),
});

/** The pool of LLM servers, as docs/pool.md says; each change answers when no run worker acts on what was before. */
export const poolRoutes: Routes = (app, gateway) => {
  const params = z.object({ pool: z.string() });
  const pool = async (name: string) => {
    const state = await gateway.client.pool.state();
    if (state.pool !== name)
      throw new HttpProblem(404, `there is no pool ${name}; this service's is ${state.pool}`);
    return gateway.client.pool;
  };
  app.get(
    '/v1/pools/:pool',
    {
      config: { scope: 'read' },
      schema: { summary: 'How the pool of LLM servers stands', params, response: { ...PROBLEMS, 200: Pool } },
    },
    async (request) => plain(await (await pool(request.params.pool)).state()),
  );

  const change = <T extends z.ZodType>(
    place: string,
    summary: string,
    body: T,
    act: (
      client: typeof gateway.client.pool,
      command: z.output<T>,
      key: string | undefined,
    ) => Promise<PoolReport>,
  ) =>
    (app as App).post(
      place,
      {
        config: { scope: 'admin' },
        schema: { summary, params, headers: Key, body, response: { ...PROBLEMS, 200: Report } },
      },
      async ({ params, body, headers }) =>
        plain(await act(await pool(params.pool), body as z.output<T>, headers['idempotency-key'])),
    );
  change('/v1/pools/:pool/add', 'Take a server in', AddServer, (client, command, key) =>
    client.add(command, key),
  );
  change('/v1/pools/:pool/remove', 'Begin no request there any more', RemoveServer, (client, { url }, key) =>
    client.remove(url, key),
  );
  change(
    '/v1/pools/:pool/drain',
    'As remove; answers when none is under way',
    DrainServer,
    (client, command, key) => client.drain(command, key),
  );
  change('/v1/pools/:pool/label', 'Give a server other labels', LabelServer, (client, command, key) =>
    client.label(command, key),
  );
  change(
    '/v1/policies/:pool/version',
    'Bring another version of the weights into use',
    SwapWeights,
    (client, command, key) => client.swap(command, key),
  );
  change(
    '/v1/policies/:pool/floor',
    'End every rollout with a token of an older version',
    RaiseFloor,
    async (_, { version }, key) => (await gateway.client.raiseFloor(version, key)).pool,
  );
};

/** As an answer has it. */
function plain<T extends PoolState | PoolReport>(value: T) {
  return value as never;
}
