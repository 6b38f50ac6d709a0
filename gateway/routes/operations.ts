import { z } from 'zod';
import { hostStates } from '../../client/hosts.ts';
import { HostStats } from '../../contracts/sandbox.ts';
import type { Routes } from '../gateway.ts';
import { HttpProblem, PROBLEMS, Problem } from '../problems.ts';

/** Whether the gateway lives, and whether it can do anything; what it offers. */
export const operationRoutes: Routes = (app, gateway) => {
  app.get(
    '/healthz',
    { schema: { summary: 'The process is up', response: { 200: z.object({ status: z.literal('ok') }) } } },
    () => ({ status: 'ok' as const }),
  );
  app.get(
    '/readyz',
    {
      schema: {
        summary: 'Temporal answers, workflow workers take tasks, and there are sandbox hosts',
        response: { 200: z.object({ hosts: z.array(z.string()) }), 503: Problem },
      },
    },
    async () => {
      if (!(await gateway.client.hasWorkflowWorker())) {
        throw new HttpProblem(503, 'no workflow worker is up');
      }
      const hosts = await gateway.client.hosts();
      if (hosts.length === 0) throw new HttpProblem(503, 'no sandbox host is up');
      return { hosts };
    },
  );
  app.get(
    '/v1/hosts',
    {
      config: { scope: 'read' },
      schema: {
        summary: 'Sandbox hosts that are up: what each holds and has room for, as it said last',
        response: {
          ...PROBLEMS,
          200: z.object({ hosts: z.array(z.object({ host: z.string(), stats: HostStats.nullable() })) }),
        },
      },
    },
    async () => ({ hosts: await hostStates(gateway.client.temporal, await gateway.client.hosts()) }),
  );
  app.get('/openapi.json', { schema: { hide: true } }, () =>
    (app as unknown as { swagger(): object }).swagger(),
  );
};
