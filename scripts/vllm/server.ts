import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream, readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import path from 'node:path';

/** A start takes half a minute on an idle machine. */
const START_MS = 400_000;
const STOP_MS = 15_000;

/** A vLLM server on the CPU, with its development endpoints: weights can be loaded into it. */
export interface VllmServer {
  readonly url: string;
  readonly logFile: string;
  stop(): Promise<void>;
}

/** What `startVllmServer` needs to know. */
export interface VllmOptions {
  /** The program, as `npm run test:vllm` and `npm run train:example` bring it. */
  readonly vllm: string;
  /** Folder of the model, tokenizer included. */
  readonly model: string;
  /** Where its log goes. */
  readonly folder: string;
  /** Further flags of `vllm serve`. */
  readonly flags: readonly string[];
  /** Context of a request, in tokens. */
  readonly context: number;
  /** Requests at once. */
  readonly requests: number;
  /** Port on the loopback address; a free one if not given. */
  readonly port?: number;
}

/** Starts a server in float32 and resolves when it is healthy. @throws Error with the end of its log */
export async function startVllmServer(options: VllmOptions): Promise<VllmServer> {
  const { vllm, model, folder, flags, context, requests } = options;
  const port = options.port ?? (await freePort());
  const logFile = path.join(folder, `vllm-${port}.log`);
  const args = ['serve', model, '--served-model-name', 'smol', '--host', '127.0.0.1', '--port', String(port)];
  const limits = ['--max-model-len', context, '--max-num-seqs', requests, '--block-size', 32].map(String);
  const child = spawn(vllm, [...args, ...limits, '--enforce-eager', '--dtype', 'float32', ...flags], {
    // A group of its own: its workers are ended with it.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      HF_HUB_OFFLINE: '1',
      VLLM_NO_USAGE_STATS: '1',
      VLLM_SERVER_DEV_MODE: '1',
      VLLM_CPU_KVCACHE_SPACE: '1',
      VLLM_CPU_OMP_THREADS_BIND: 'nobind',
      OMP_NUM_THREADS: '1',
    },
  });
  // Left behind it would hold gigabytes. (A signal that nobody handles ends this process without this.)
  process.once('exit', () => endGroup(child, 'SIGKILL'));
  const log = createWriteStream(logFile);
  child.stdout.pipe(log, { end: false });
  child.stderr.pipe(log, { end: false });
  const url = `http://127.0.0.1:${port}`;
  const server = { url, logFile, stop: () => stop(child) };
  try {
    await untilHealthy(child, url);
  } catch (error) {
    await server.stop();
    throw new Error(`${error}\n${readFileSync(logFile, 'utf8').slice(-2000)}`, { cause: error });
  }
  return server;
}

async function untilHealthy(child: ChildProcess, url: string): Promise<void> {
  const deadline = Date.now() + START_MS;
  while (Date.now() < deadline) {
    if (child.exitCode !== null) throw new Error(`vLLM ended with exit code ${child.exitCode}`);
    const healthy = await fetch(`${url}/health`).then(
      ({ status }) => status === 200,
      () => false,
    );
    if (healthy) return;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  throw new Error(`vLLM did not start within ${START_MS} ms`);
}

/** With a request under way it may ignore the request to end: then its group is killed. */
async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  endGroup(child, 'SIGTERM');
  const timer = setTimeout(() => endGroup(child, 'SIGKILL'), STOP_MS);
  await ended;
  clearTimeout(timer);
}

function endGroup({ exitCode, signalCode, pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (exitCode === null && signalCode === null && pid !== undefined) process.kill(-pid, signal);
}

/** A port of the loopback address that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
