import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { freePort } from '../support/temporal.ts';

/** A gateway in a process of its own, behind an address that stays when it is killed. */
export interface RestartedGateway {
  readonly url: string;
  /** Rollouts that it said it accepted, whether or not a caller heard of it. */
  readonly accepted: readonly string[];
  stop(): Promise<void>;
}

/** It is killed when it has accepted its first rollout, before its answer reaches anybody, and started again. */
export async function restartedGateway(env: Record<string, string>): Promise<RestartedGateway> {
  const accepted: string[] = [];
  let gateway = start(env);
  const proxy = http.createServer(async (request, response) => {
    try {
      const body = await buffer(request);
      const { method = '', headers, url } = request;
      const answer = await fetch(`http://127.0.0.1:${(await gateway).port}${url}`, {
        method,
        headers: forwarded(headers),
        ...(body.length === 0 ? {} : { body }),
      });
      const answered = await answer.text();
      if (method === 'POST' && answer.status === 202) {
        accepted.push(JSON.parse(answered).rolloutId);
        if (accepted.length === 1) {
          (await gateway).child.kill('SIGKILL');
          await once((await gateway).child, 'exit');
          request.socket.destroy();
          gateway = start(env);
          return;
        }
      }
      response
        .writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' })
        .end(answered);
    } catch {
      request.socket.destroy(); // nobody there: as it is without a proxy
    }
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    accepted,
    stop: async () => {
      proxy.closeAllConnections();
      proxy.close();
      const { child } = await gateway;
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL');
        await once(child, 'exit');
      }
    },
  };
}

function forwarded(headers: http.IncomingHttpHeaders): Record<string, string> {
  const names = ['content-type', 'idempotency-key', 'authorization'];
  return Object.fromEntries(
    names.flatMap((name) => (headers[name] === undefined ? [] : [[name, String(headers[name])]])),
  );
}

async function start(env: Record<string, string>): Promise<{ child: ChildProcess; port: number }> {
  const port = await freePort();
  const main = fileURLToPath(new URL('../../gateway/main.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', import.meta.resolve('tsx'), main], {
    env: { ...process.env, ...env, ROLLOUTS_GATEWAY_PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  const said = text(child.stderr as Readable);
  const ended = once(child, 'exit').then(async () => {
    throw new Error(`the gateway ended at its start: ${await said}`);
  });
  ended.catch(() => {}); // it is killed later
  await Promise.race([once(child, 'message'), ended]);
  return { child, port };
}
