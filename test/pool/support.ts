import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import type { TestContext } from 'node:test';
import { NativeConnection, Worker, type WorkerOptions } from '@temporalio/worker';
import { RolloutClient } from '../../client/rollout-client.ts';
import { type Config, loadConfig } from '../../config/load.ts';
import { WORKFLOW_QUEUE } from '../../contracts/queues.ts';
import { joinPool, type PoolPart } from '../../workers/pool/member.ts';
import { startTestServer, type TestServer } from '../support/temporal.ts';
import { tokenizerFolder } from '../support/tokenizer-folders.ts';
import { workflowBundle } from '../support/workflows.ts';
import { makeWorld, VersionedServer, type World } from './versioned-server.ts';

/** A pool of this name has leases that run out within a test; others have the usual time. */
export const SHORT_LEASES = 'short-leases';
const SHORT_SECONDS = 3;

export function configOf(address: string, pool: string): Config {
  const llm = { pool, ...(pool === SHORT_LEASES ? { leaseSeconds: SHORT_SECONDS } : {}) };
  return loadConfig({ env: {}, flags: { temporal: { address }, llm } });
}

/** What all tests of a file share: a real Temporal server, a workflow worker, and the servers' world. */
export interface PoolService {
  readonly address: string;
  readonly world: World;
  /** A run worker of a pool, without the run stage. */
  join(t: Pick<TestContext, 'after'>, pool: string, address?: string): Promise<PoolPart>;
  client(t: Pick<TestContext, 'after'>, pool: string): Promise<RolloutClient>;
  server(t: Pick<TestContext, 'after'>, version: number, port?: number): Promise<VersionedServer>;
  stop(): Promise<void>;
}

export async function startPoolService(): Promise<PoolService> {
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'pool-'));
  const [world, server, workflowBundleOf] = await Promise.all([
    tokenizerFolder('smollm2', scratch).then(makeWorld),
    startTestServer(),
    workflowBundle(),
  ]);
  const { address } = server as TestServer;
  const connection = await NativeConnection.connect({ address });
  const workflows = await Worker.create({
    connection,
    taskQueue: WORKFLOW_QUEUE,
    workflowBundle: workflowBundleOf,
  });
  const running = workflows.run();
  return {
    address,
    world,
    join: async (t, pool, at = address) => {
      const own = await NativeConnection.connect({ address: at });
      const shared: Omit<WorkerOptions, 'taskQueue'> & { connection: NativeConnection } = {
        connection: own,
        shutdownForceTime: '1s',
      };
      const part = await joinPool(configOf(at, pool), shared);
      const ended = part.workers.map((worker) => worker.run());
      t.after(async () => {
        for (const worker of part.workers) worker.shutdown();
        await Promise.all(ended);
        await part.leave();
        await own.close();
      });
      return part;
    },
    client: async (t, pool) => {
      const client = await RolloutClient.connect(configOf(address, pool));
      t.after(() => client.close());
      return client;
    },
    server: async (t, version, port) => {
      const one = await VersionedServer.start(world, version, port);
      t.after(() => one.stop());
      return one;
    },
    stop: async () => {
      workflows.shutdown();
      await running;
      await connection.close();
      await server.stop();
      await rm(scratch, { recursive: true });
    },
  };
}

/** A way to a server that can be cut: what is under way ends, and nothing new gets through. */
export async function startTunnel(address: string) {
  const [host, port] = address.split(':') as [string, string];
  const open = new Set<net.Socket>();
  let isCut = false;
  const tunnel = net.createServer((near) => {
    if (isCut) return void near.destroy();
    const far = net.connect(Number(port), host);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(from);
      from.pipe(to);
      from.on('error', () => to.destroy()); // cut, or the server is gone
      from.on('close', () => {
        open.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => tunnel.listen(0, '127.0.0.1', resolve));
  const cut = () => {
    isCut = true;
    for (const socket of open) socket.destroy();
  };
  const mend = () => {
    isCut = false;
  };
  const close = () => {
    cut();
    tunnel.close();
  };
  return { address: `127.0.0.1:${(tunnel.address() as net.AddressInfo).port}`, cut, mend, close };
}
