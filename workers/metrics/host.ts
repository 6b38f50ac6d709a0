import type { FastifyInstance } from 'fastify';
import type { SandboxHost } from '../sandbox-host/host.ts';
import type { Metrics } from './metrics.ts';

/** What the host answers to commands: an ExecResult or a ShellResult. */
interface Ended {
  readonly exitCode: number | null;
  readonly timedOut: boolean;
  readonly limit: string | null;
}

/** Calls that stay open for as long as a run or an agent's program lasts. */
const STANDING = /\/(watch|endpoint\/next)$/;

/** Counts and times the calls of a sandbox host, and tells what it holds. To be given the server before its routes. */
export function countHost(server: FastifyInstance, host: SandboxHost, metrics: Metrics): void {
  const seconds = metrics.histogram('rollouts_host_call_seconds');
  const commands = metrics.counter('rollouts_sandbox_commands_total');
  const limits = metrics.counter('rollouts_sandbox_limits_total');
  server.addHook('onResponse', (request, reply, done) => {
    const { url } = request.routeOptions;
    if (url !== undefined && !STANDING.test(url)) {
      const call = `${request.method} ${url}`;
      seconds.observe({ call, code: String(reply.statusCode) }, reply.elapsedTime / 1000);
    }
    done();
  });
  server.addHook('preSerialization', (request, _reply, payload, done) => {
    const via = request.routeOptions.url?.match(/\/(exec|shells\/:name\/run)$/)?.[1];
    const { exitCode = null, timedOut, limit } = (payload ?? {}) as Partial<Ended>;
    if (via !== undefined && timedOut !== undefined) {
      const end = timedOut ? 'timeout' : exitCode === null ? 'signal' : exitCode === 0 ? 'zero' : 'nonzero';
      commands.inc({ via: via === 'exec' ? 'exec' : 'shell', end });
      if (limit) limits.inc({ limit });
    }
    done(null, payload);
  });
  const leaks = metrics.counter('rollouts_sandbox_leaks_total');
  metrics.counter('rollouts_sandboxes_lost_total').inc(host.lostBefore);
  metrics.onScrape(() => {
    const stats = host.stats();
    const { sandboxes, capacity, graders, graderCapacity } = stats;
    for (const [purpose, there, most] of [
      ['agent', sandboxes, capacity],
      ['grader', graders, graderCapacity],
    ] as const) {
      metrics.gauge('rollouts_sandboxes').set({ purpose }, there);
      metrics.gauge('rollouts_sandbox_capacity').set({ purpose }, most);
    }
    leaks.reset();
    leaks.inc(host.audit.reaped);
  });
}
