import { z } from 'zod';
import type { Scope } from '../../contracts/gateway.ts';
import { AddServer } from '../../contracts/pool-commands.ts';
import type { Routes } from '../gateway.ts';
import { PROBLEMS, Problem } from '../problems.ts';
import { ProcessAnswer } from '../process/answer.ts';
import { ProcessJobs } from '../process/jobs.ts';
import { ProcessRequest } from '../process/request.ts';

const Said = z.object({ status: z.string() });
const Counts = z.object({
  init_queue: z.int(),
  run_queue: z.int(),
  eval_queue: z.int(),
  active_init: z.int(),
  active_run: z.int(),
  active_eval: z.int(),
  total: z.int(),
});

/**
 * ProRL Agent's own API, so that a trainer made for it works unchanged; docs/trainers.md says what becomes of what.
 */
export const processRoutes: Routes = (app, gateway) => {
  const jobs = new ProcessJobs(gateway, app.log);
  const described = (scope: Scope, summary: string) => ({
    config: { scope },
    schema: { summary: `ProRL Agent: ${summary}`, response: { ...PROBLEMS, 200: Said, 400: Problem } },
  });

  app.post('/start', described('write', 'take jobs'), async () => {
    await jobs.start();
    return { status: 'Server started successfully' };
  });
  app.post('/stop', described('write', 'end all jobs and take no more'), async () => {
    await jobs.stop();
    return { status: 'Server stopped successfully' };
  });
  app.post('/clear_llm_server', described('admin', 'use no LLM server any more'), async () => {
    await jobs.clearServers();
    return { status: 'Cleared all LLM server addresses' };
  });

  app.get(
    '/status',
    {
      config: { scope: 'read' },
      schema: { summary: 'ProRL Agent: how many jobs are where', response: { ...PROBLEMS, 200: Counts } },
    },
    async () => {
      await jobs.mustRun();
      return jobs.counts();
    },
  );

  app.post(
    '/add_llm_server',
    {
      config: { scope: 'admin' },
      schema: {
        summary: 'ProRL Agent: use an LLM server',
        body: z.looseObject({ address: AddServer.shape.server.shape.url }),
        response: { ...PROBLEMS, 200: Said },
      },
    },
    async ({ body: { address } }) => {
      await jobs.addServer(address);
      return { status: `Added LLM server address: ${address}` };
    },
  );

  app.post(
    '/cancel',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'ProRL Agent: end a job',
        body: z.looseObject({ job_id: z.string().min(1).max(200) }),
        response: { ...PROBLEMS, 200: Said },
      },
    },
    async ({ body }) => {
      await jobs.cancel(body.job_id);
      return { status: `Job ${body.job_id} canceled successfully` };
    },
  );

  app.post(
    '/process',
    {
      config: { scope: 'write' },
      schema: {
        summary: 'ProRL Agent: a job, answered when it has ended',
        body: ProcessRequest,
        response: { ...PROBLEMS, 200: ProcessAnswer, 409: Problem },
      },
    },
    async ({ body, caller }, reply) => {
      const gone = new AbortController();
      reply.raw.once('close', () => {
        if (!reply.raw.writableFinished) gone.abort();
      });
      // Where nobody is there any more, nobody is answered.
      return (await jobs.process(body, gateway.tenants.of(caller, undefined), gone.signal)) ?? reply.hijack();
    },
  );
};
