import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client, Connection } from '@temporalio/client';
import { startEmbeddedLlm } from '../../activities/llm/embedded/server.ts';
import { removeEndpoints, writeEndpoints } from '../../config/endpoints.ts';
import { withNothingInherited } from '../../config/inherited.ts';
import { type Config, loadConfig } from '../../config/load.ts';
import { environmentName, valueAt } from '../../config/names.ts';
import { startTimeOf } from '../../config/process-identity.ts';
import { loadTools } from '../../config/tools.ts';
import { messageOf } from '../../contracts/failures.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import { devServerArguments, waitForServer, withParentDeath } from '../../temporal-config/dev-server.ts';
import { dataConverterOf } from '../../temporal-config/encryption/data-converter.ts';
import { registerSchedules } from '../../temporal-config/schedules.ts';
import { registerSearchAttributes } from '../../temporal-config/search-attributes.ts';
import { seedPool } from '../pool/seed.ts';
import { hostPaths } from '../sandbox-host/paths.ts';
import { Keeper, type Running } from './keep.ts';
import { lockStack } from './lock.ts';
import { type Ports, portsFor } from './ports.ts';
import { Processes, tailOf } from './processes.ts';

/** A whole stack on this machine: Temporal, LLM, sandbox host, workers. */
export interface Stack {
  /** Configuration with the addresses of this stack. */
  readonly config: Config;
  readonly uiUrl: string;
  /** Resolves with a sentence if a part ends by itself. */
  readonly broken: Promise<string>;
  /** Stops everything in order: workers, sandbox host, LLM, Temporal. */
  stop(): Promise<void>;
}

/** Told of each step. */
export type Report = (line: string) => void;

/**
 * Starts what the configuration asks for. What an earlier stack of this checkout left behind (it was killed)
 * is ended first; its rollouts go on.
 * @throws RolloutError InvalidRequest if a stack already runs here or a port is taken.
 */
export async function startStack(config: Config, report: Report): Promise<Stack> {
  const { stateFolder } = config.derived;
  hostPaths(stateFolder); // refuses a path that is too long for a socket
  const unlock = lockStack(stateFolder);
  const parts = new Parts(config, report);
  try {
    const { address, uiUrl, env } = await parts.start();
    writeEndpoints(stateFolder, {
      temporalAddress: address,
      uiUrl,
      llmServers: parts.llmServers,
      metrics: parts.metrics,
      supervisorPid: process.pid,
      supervisorStart: startTimeOf(process.pid) ?? '',
    });
    return {
      config: loadConfig({ env: { ...process.env, ...env } }),
      uiUrl,
      broken: parts.broken,
      stop: async () => {
        removeEndpoints(stateFolder);
        await parts.stop();
        unlock();
      },
    };
  } catch (error) {
    await parts.stop();
    unlock();
    throw error;
  }
}

class Parts {
  llmServers: LlmServer[] = [];
  metrics: string[] = [];
  /** Resolves with a sentence when a part could not be kept running. */
  readonly broken: Promise<string>;
  private readonly config: Config;
  private readonly report: Report;
  private readonly processes: Processes;
  private readonly tools = loadTools();
  private readonly kept: Keeper[] = [];
  private stopping = false;
  private readonly stopped = new AbortController();
  private seeding: Promise<void> = Promise.resolve();
  private breakDown: (news: string) => void = () => {};

  constructor(config: Config, report: Report) {
    this.config = config;
    this.report = report;
    this.processes = new Processes(config.derived.stateFolder);
    this.broken = new Promise((resolve) => {
      this.breakDown = resolve;
    });
  }

  async start(): Promise<{ address: string; uiUrl: string; env: Record<string, string> }> {
    const left = this.processes.endLeftovers();
    if (left.length > 0) this.report(`ended what an earlier stack left: ${left.join(', ')}`);
    const ports = await portsFor(this.config);
    const [temporal] = await settled([this.startTemporal(ports), this.startLlm(ports)]);
    const env = environmentOf(this.config, {
      temporal: { address: temporal.address },
      llm: { servers: this.llmServers },
      state: { folder: this.config.derived.stateFolder },
      metrics: { workerPort: ports.workerMetrics, hostPort: ports.hostMetrics },
    });
    const served = [ports.workerMetrics, ports.hostMetrics].filter((port) => port !== 0);
    this.metrics = served.map((port) => `http://${this.config.metrics.address}:${port}/metrics`);
    if (served.length > 0) this.report(`metrics at ${this.metrics.join(' and ')}`);
    await this.startNode('sandbox-host', 'workers/sandbox-host/main.ts', env, (argv) =>
      withNothingInherited(this.tools.python, argv),
    );
    await this.startNode('worker', 'workers/main.ts', env);
    if (this.isEncrypted) {
      const codec = { port: ports.codec, origins: [temporal.uiUrl, `http://localhost:${ports.ui}`] };
      await this.startNode('codec-server', 'gateway/codec-server/main.ts', {
        ...env,
        ...environmentOf(this.config, { codecServer: codec }),
      });
    }
    this.seeding = this.seed(temporal.address).catch((error) => {
      if (!this.stopping) this.breakDown(`the pool of LLM servers: ${messageOf(error)}`);
    });
    return { ...temporal, env };
  }

  private get isEncrypted(): boolean {
    return this.config.temporal.encryptionKeys !== undefined;
  }

  async stop(): Promise<void> {
    this.stopping = true;
    this.stopped.abort();
    await this.seeding;
    for (const part of this.kept.splice(0).reverse()) await part.stop();
  }

  private async startTemporal(ports: Ports): Promise<{ address: string; uiUrl: string }> {
    const { namespace } = this.config.temporal;
    const address = `127.0.0.1:${ports.temporal}`;
    const uiUrl = `http://127.0.0.1:${ports.ui}`;
    const databaseFile = path.join(this.config.derived.stateFolder, 'temporal.db');
    const codec = this.isEncrypted ? { codecUrl: `http://127.0.0.1:${ports.codec}` } : {};
    const server = { port: ports.temporal, uiPort: ports.ui, databaseFile, namespace, ...codec };
    const launch = async (tries: number): Promise<Running> => {
      const [command, args] = withParentDeath(this.tools.temporal, devServerArguments(server));
      const child = this.processes.start({ name: 'temporal', command, args });
      const connection = await Promise.race([
        waitForServer(address, namespace, { ended: child.ended }),
        child.ended,
      ]);
      if (typeof connection === 'string') {
        // It chooses inner ports by itself, and another process may take one before it does.
        if (tries > 1) return launch(tries - 1);
        throw new Error(`${connection}:\n${tailOf(child.logFile)}`);
      }
      await registerSearchAttributes(connection, namespace);
      await registerSchedules(new Client({ connection, namespace }));
      await connection.close();
      return { ended: child.ended, stop: () => child.stop(15_000) };
    };
    await this.keep(() => launch(3));
    this.report(`Temporal server at ${address}, UI at ${uiUrl}`);
    return { address, uiUrl };
  }

  private async startLlm(ports: Ports): Promise<void> {
    const { llm, derived } = this.config;
    this.llmServers = llm.servers;
    if (llm.servers.length > 0) return;
    await this.keep(async () => {
      const server = await startEmbeddedLlm({
        python: this.tools.python,
        model: llm.model ?? this.tools.model,
        port: ports.llm,
        contextTokens: llm.contextTokens,
        // More slots than processors only read the same prompt more often.
        parallel: llm.parallel ?? Math.min(4, os.availableParallelism()),
        ...(llm.threads === undefined ? {} : { threads: llm.threads }),
        logFile: path.join(derived.stateFolder, 'logs', 'llm.log'),
      });
      this.llmServers = [{ url: server.url, dialect: 'llama.cpp', policyVersion: 0 }];
      return { ended: server.exited.then(() => 'the LLM server ended'), stop: () => server.stop() };
    });
    this.report(`LLM server at ${this.llmServers[0]?.url}`);
  }

  /** The servers become the pool's, however long it takes them to be up. */
  private async seed(address: string): Promise<void> {
    const { temporal, llm } = this.config;
    const connection = await Connection.connect({ address });
    try {
      await seedPool({
        client: new Client({
          ...{ connection, namespace: temporal.namespace },
          dataConverter: dataConverterOf(this.config),
        }),
        input: { pool: llm.pool, leaseSeconds: llm.leaseSeconds },
        servers: this.llmServers,
        signal: this.stopped.signal,
        report: this.report,
      });
    } finally {
      await connection.close();
    }
  }

  private async startNode(
    name: string,
    file: string,
    env: Record<string, string>,
    wrapped = (argv: [string, ...string[]]) => argv,
  ): Promise<void> {
    const entry = fileURLToPath(new URL(`../../${file}`, import.meta.url));
    // By its address: a name would be looked up from the folder that the person is in.
    const [command, ...args] = wrapped([process.execPath, '--import', import.meta.resolve('tsx'), entry]);
    const graceMs = this.config.workers.shutdownSeconds * 1000 + 5000;
    await this.keep(async () => {
      const child = this.processes.start({ name, command, args, env, ipc: true });
      await child.ready();
      this.report(`${name} is up (log: ${child.logFile})`);
      return { ended: child.ended, stop: () => child.stop(graceMs) };
    });
  }

  private async keep(launch: () => Promise<Running>): Promise<void> {
    const part = await Keeper.start(launch, this.report);
    this.kept.push(part);
    void part.ended.then((news) => {
      if (!this.stopping) this.breakDown(news);
    });
  }
}

/** Waits for all before it throws, so that whatever was started is known and can be stopped. */
async function settled<A, B>(work: [Promise<A>, Promise<B>]): Promise<[A, B]> {
  await Promise.allSettled(work);
  return Promise.all(work);
}

/**
 * The environment that gives child processes this process's effective values: what came from flags, and the
 * addresses that were chosen.
 */
function environmentOf(
  config: Config,
  values: Record<string, Record<string, unknown>>,
): Record<string, string> {
  const env: Record<string, string> = {};
  const put = (name: string, value: unknown) => {
    env[environmentName(name)] = typeof value === 'string' ? value : JSON.stringify(value);
  };
  if (config.derived.configFile) env.ROLLOUTS_CONFIG = config.derived.configFile;
  for (const [name, origin] of Object.entries(config.origins)) {
    if (origin === 'flag') put(name, valueAt(config, name));
  }
  for (const [section, entries] of Object.entries(values)) {
    for (const [key, value] of Object.entries(entries)) put(`${section}.${key}`, value);
  }
  return env;
}
