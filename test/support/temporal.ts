import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { loadTools } from '../../config/tools.ts';
import { devServerArguments, waitForServer, withParentDeath } from '../../temporal-config/dev-server.ts';

/** A real Temporal development server of one test file. */
export interface TestServer {
  readonly address: string;
  readonly uiUrl: string;
  readonly databaseFile: string;
  stop(): Promise<void>;
}

/** Starts a server on free ports with a database of its own. `settings`: of the server's dynamic configuration. */
export async function startTestServer(settings: Record<string, string> = {}, tries = 3): Promise<TestServer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'temporal-'));
  const databaseFile = path.join(folder, 'db');
  const [port, uiPort] = [await freePort(), await freePort()];
  const [command, args] = withParentDeath(loadTools().temporal, [
    ...devServerArguments({ port, uiPort, databaseFile, namespace: 'default' }),
    ...Object.entries(settings).flatMap(([name, value]) => ['--dynamic-config-value', `${name}=${value}`]),
  ]);
  const child: ChildProcess = spawn(command, args, { stdio: 'ignore' });
  const ended = once(child, 'exit');
  const address = `127.0.0.1:${port}`;
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const connection = await waitForServer(address, 'default', { ended });
    await connection.close();
  } catch (error) {
    // Another process took one of its ports, or it does not come up: left to itself it would keep this process.
    await stop();
    if (tries > 1) return startTestServer(settings, tries - 1);
    throw error;
  }
  return { address, uiUrl: `http://127.0.0.1:${uiPort}`, databaseFile, stop };
}

/** A TCP port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = net.createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
