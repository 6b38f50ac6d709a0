import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type EmbeddedLlm, startEmbeddedLlm } from '../../activities/llm/embedded/server.ts';
import { readEndpoints, removeEndpoints, writeEndpoints } from '../../config/endpoints.ts';
import { type Config, loadConfig } from '../../config/load.ts';
import { environmentName } from '../../config/names.ts';
import { loadTools } from '../../config/tools.ts';
import { RolloutError } from '../../contracts/failures.ts';
import type { LlmServer } from '../../contracts/llm.ts';
import { devServerArguments, waitForServer, withParentDeath } from '../../temporal-config/dev-server.ts';
import { choosePort } from '../../temporal-config/ports.ts';
import { registerSearchAttributes } from '../../temporal-config/search-attributes.ts';
import { type Child, Processes, tailOf } from './processes.ts';

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
  const running = readEndpoints(stateFolder);
  if (running) {
    throw new RolloutError(
      'InvalidRequest',
      `a stack of this checkout already runs (process ${running.supervisorPid}); stop it with Ctrl-C there`,
    );
  }
  const parts = new Parts(config, report);
  try {
    return await parts.start();
  } catch (error) {
    await parts.stop();
    throw error;
  }
}

class Parts {
  private readonly config: Config;
  private readonly report: Report;
  private readonly processes: Processes;
  private readonly tools = loadTools();
  private readonly stops: (() => Promise<void>)[] = [];
  private readonly breaks: Promise<string>[] = [];
  private stopping = false;

  constructor(config: Config, report: Report) {
    this.config = config;
    this.report = report;
    this.processes = new Processes(config.derived.stateFolder);
  }

  async start(): Promise<Stack> {
    const left = this.processes.endLeftovers();
    if (left.length > 0) this.report(`ended what an earlier stack left: ${left.join(', ')}`);
    const [temporal, llmServers] = await settled([this.startTemporal(), this.startLlm()]);

    const values = {
      temporal: { address: temporal.address },
      llm: { servers: llmServers },
      state: { folder: this.config.derived.stateFolder },
    };
    const env = environmentOf(this.config, values);
    await this.startNode('sandbox-host', 'workers/sandbox-host/main.ts', env);
    await this.startNode('worker', 'workers/main.ts', env);
    writeEndpoints(this.config.derived.stateFolder, {
      temporalAddress: temporal.address,
      uiUrl: temporal.uiUrl,
      llmServers,
      supervisorPid: process.pid,
    });
    this.stops.push(async () => removeEndpoints(this.config.derived.stateFolder));
    return {
      config: loadConfig({ env: { ...process.env, ...env } }),
      uiUrl: temporal.uiUrl,
      broken: Promise.race(this.breaks),
      stop: () => this.stop(),
    };
  }

  async stop(): Promise<void> {
    this.stopping = true;
    for (const stop of this.stops.splice(0).reverse()) await stop();
  }

  private async startTemporal(): Promise<{ address: string; uiUrl: string }> {
    const { temporal, origins, derived } = this.config;
    const port = await choosePort('temporal.port', temporal.port, 'temporal.port' in origins);
    const uiPort = await choosePort('temporal.uiPort', temporal.uiPort, 'temporal.uiPort' in origins);
    const [command, args] = withParentDeath(
      this.tools.temporal,
      devServerArguments({
        port,
        uiPort,
        databaseFile: path.join(derived.stateFolder, 'temporal.db'),
        namespace: temporal.namespace,
      }),
    );
    const child = this.processes.start({ name: 'temporal', command, args });
    this.watch(child, 15_000);
    const address = `127.0.0.1:${port}`;
    const connection = await Promise.race([
      waitForServer(address, temporal.namespace),
      child.ended.then((how) => {
        throw new Error(`${how}:\n${tailOf(child.logFile)}`);
      }),
    ]);
    await registerSearchAttributes(connection, temporal.namespace);
    await connection.close();
    const uiUrl = `http://127.0.0.1:${uiPort}`;
    this.report(`Temporal server at ${address}, UI at ${uiUrl}`);
    return { address, uiUrl };
  }

  private async startLlm(): Promise<LlmServer[]> {
    const { llm, origins, derived } = this.config;
    if (llm.servers.length > 0) return llm.servers;
    const port = await choosePort('llm.port', llm.port, 'llm.port' in origins);
    const server: EmbeddedLlm = await startEmbeddedLlm({
      python: this.tools.python,
      model: llm.model ?? this.tools.model,
      port,
      contextTokens: llm.contextTokens,
      // More slots than processors only read the same prompt more often.
      parallel: llm.parallel ?? Math.min(4, os.availableParallelism()),
      ...(llm.threads === undefined ? {} : { threads: llm.threads }),
      logFile: path.join(derived.stateFolder, 'logs', 'llm.log'),
    });
    this.stops.push(() => server.stop());
    this.breaks.push(server.exited.then(() => this.unlessStopping('the LLM server ended')));
    this.report(`LLM server at ${server.url}`);
    return [{ url: server.url, dialect: 'llama.cpp', policyVersion: 0 }];
  }

  private async startNode(name: string, file: string, env: Record<string, string>): Promise<void> {
    const entry = fileURLToPath(new URL(`../../${file}`, import.meta.url));
    const args = ['--import', 'tsx', entry];
    const child = this.processes.start({ name, command: process.execPath, args, env, ipc: true });
    this.watch(child, this.config.workers.shutdownSeconds * 1000 + 5000);
    await child.ready();
    this.report(`${name} is up (log: ${child.logFile})`);
  }

  private watch(child: Child, graceMs: number): void {
    this.stops.push(() => child.stop(graceMs));
    this.breaks.push(child.ended.then((how) => this.unlessStopping(`${how}; its log: ${child.logFile}`)));
  }

  /** A part that ends while everything is being stopped is no news. */
  private unlessStopping(news: string): Promise<string> | string {
    return this.stopping ? new Promise<string>(() => {}) : news;
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
  for (const [name, origin] of Object.entries(config.origins)) {
    if (origin === 'flag') put(name, valueAt(config, name));
  }
  for (const [section, entries] of Object.entries(values)) {
    for (const [key, value] of Object.entries(entries)) put(`${section}.${key}`, value);
  }
  return env;
}

function valueAt(config: Config, name: string): unknown {
  return name.split('.').reduce<unknown>((node, key) => (node as Record<string, unknown>)[key], config);
}
