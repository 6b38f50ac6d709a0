import { mkdirSync, writeFileSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { stringify } from 'smol-toml';
import { RolloutClient } from '../client/rollout-client.ts';
import { loadConfig } from '../config/load.ts';
import type { ConfigValues } from '../config/schema.ts';
import { PROJECT_ROOT } from '../config/tools.ts';
import { RolloutError } from '../contracts/failures.ts';
import type { LlmServer } from '../contracts/llm.ts';
import type { SandboxBackendName } from '../contracts/sandbox.ts';
import { choosePort } from '../temporal-config/ports.ts';
import { ROLES, type Role } from '../workers/roles.ts';
import { type Child, Processes } from '../workers/stack/processes.ts';
import { Member } from './member.ts';
import type { Place } from './network.ts';
import { type ProductionServer, startTemporal } from './temporal.ts';
import { Volume } from './volume.ts';

/** What a cluster is made of, and its short times. */
export interface ClusterOptions {
  /** A short path: the sandbox hosts' sockets lie in it. */
  readonly root: string;
  readonly hosts: readonly string[];
  /** Sandboxes at once on each host. */
  readonly capacity: number;
  readonly llmUrl: string;
  /** A workflow and an eval worker on each host; one of each in all if absent. */
  readonly everyRoleOnEachHost?: boolean;
  /** One worker process on each host, with all roles. */
  readonly oneWorkerPerHost?: boolean;
  /** Where `temporal` and each host are; on this machine's loopback if absent. */
  readonly placeOf?: (name: string) => Place;
  /** Variables of a process that is about to start, by its name. */
  readonly environmentOf?: (member: string) => Readonly<Record<string, string>>;
  /** Seconds after which an LLM server that says nothing is left. */
  readonly silentLlmSeconds?: number;
  /** Modules of handlers; the suite's own if absent. */
  readonly handlers?: readonly string[];
  /** Run workers on each host. */
  readonly runWorkers?: number;
  readonly backend?: SandboxBackendName;
  /** The Temporal server is this one; the development server if absent. */
  readonly production?: ProductionServer | undefined;
  /** Slots of workers and room of hosts that are not as this cluster's capacity gives them. */
  readonly workers?: Partial<ConfigValues['workers']>;
  readonly graderCapacity?: number;
  /** Where the LLM server is no llama.cpp. */
  readonly llm?: Partial<LlmServer>;
  /** The store begins as a copy of this folder. */
  readonly storeFrom?: string;
  /** Each process counts and serves its metrics, from this port on. */
  readonly firstMetricsPort?: number;
  /** Settings of other things. */
  readonly settings?: Partial<Pick<ConfigValues, 'log' | 'traces'>>;
}

/** First port that is tried for the Temporal server: far from the stack's own. */
const FIRST_PORT = 27_233;
/** Seconds after which an LLM server that says nothing is left. */
const SILENT_LLM_SECONDS = 2;
const OWN_HANDLER = fileURLToPath(new URL('./handler.ts', import.meta.url));
/** Seconds without a word about a sandbox before its rollout is looked up. */
const SILENT_SANDBOX_SECONDS = 5;
/** Tries to make the LLM server a member of the pool. */
const MOST_FAILURES = 5;

/** The whole product as separate processes: one Temporal server, sandbox hosts, workers of one role each. */
export class Cluster {
  readonly members = new Map<string, Member>();
  readonly store: Volume;
  /** Resolves with a sentence if a process cannot be started again. */
  readonly broken: Promise<string>;
  readonly client: RolloutClient;
  readonly address: string;
  private readonly options: ClusterOptions;

  private constructor(
    options: ClusterOptions,
    client: RolloutClient,
    address: string,
    store: Volume,
    members: Map<string, Member>,
    broken: Promise<string>,
  ) {
    this.options = options;
    this.client = client;
    this.address = address;
    this.store = store;
    this.members = members;
    this.broken = broken;
  }

  static async start(options: ClusterOptions): Promise<Cluster> {
    const { root, hosts } = options;
    const processes = new Processes(root);
    const store = await Volume.make(path.join(root, 'store'));
    if (options.storeFrom !== undefined) await cp(options.storeFrom, store.folder, { recursive: true });
    const ports = {
      port: await choosePort('temporal.port', FIRST_PORT, false),
      uiPort: await choosePort('temporal.uiPort', FIRST_PORT + 1000, false),
    };
    const place = options.placeOf?.('temporal');
    const address = `${place?.address ?? '127.0.0.1'}:${ports.port}`;
    const fileOf = new Map(hosts.map((host) => [host, writeConfiguration(options, host, address, store)]));
    const members = new Map<string, Member>();
    let tell!: (news: string) => void;
    const broken = new Promise<string>((resolve) => {
      tell = resolve;
    });
    const add = (name: string, launch: () => Promise<Child>) => {
      const member = new Member(name, launch, tell);
      members.set(name, member);
      return member;
    };
    const up = (starting: readonly Member[]) =>
      Promise.race([
        Promise.all(starting.map((member) => member.ready)),
        broken.then((news) => Promise.reject(new Error(news))),
      ]);
    await up([
      add('temporal', () => startTemporal(processes, root, { ...ports, place }, options.production)),
    ]);
    let metricsPort = options.firstMetricsPort;
    const node = (name: string, host: string, file: string, args: readonly string[]) => {
      const port = metricsPort === undefined ? undefined : String(metricsPort++);
      const env = () => ({
        ROLLOUTS_CONFIG: fileOf.get(host) as string,
        ...(port && { ROLLOUTS_METRICS_WORKER_PORT: port, ROLLOUTS_METRICS_HOST_PORT: port }),
        ...options.environmentOf?.(name),
      });
      const inside = options.placeOf?.(host).inside ?? [];
      return add(name, () => startNode(processes, name, [...inside, ...nodeCommand(file), ...args], env()));
    };
    const worker = (name: string, host: string, roles: readonly Role[]) =>
      node(name, host, 'workers/main.ts', [roles.join()]);
    const [first] = hosts as [string];
    const separateWorkers = () => [
      ...(options.everyRoleOnEachHost ? hosts : [first]).flatMap((host) => [
        worker(`workflow-${host}`, host, ['workflow']),
        worker(`eval-${host}`, host, ['eval']),
      ]),
      ...hosts.flatMap((host) => [
        worker(`init-${host}`, host, ['init']),
        // Two, so that one goes on while the other stands still.
        ...Array.from({ length: options.runWorkers ?? 2 }, (_, index) =>
          worker(`run-${host}-${index + 1}`, host, ['run']),
        ),
      ]),
    ];
    await up([
      ...hosts.map((host) => node(`host-${host}`, host, 'workers/sandbox-host/main.ts', [])),
      ...(options.oneWorkerPerHost
        ? hosts.map((host) => worker(`worker-${host}`, host, ROLES))
        : separateWorkers()),
    ]);
    const config = loadConfig({ env: {}, file: fileOf.get(first) as string });
    const client = await RolloutClient.connect(config);
    const cluster = new Cluster(options, client, address, store, members, broken);
    try {
      await addServer(client, {
        url: options.llmUrl,
        dialect: 'llama.cpp',
        policyVersion: 7,
        ...options.llm,
      });
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return cluster;
  }

  /** Members whose name begins so. */
  named(prefix: string): Member[] {
    return [...this.members.values()].filter(({ name }) => name.startsWith(prefix));
  }

  /** State folder of each host. */
  get stateFolders(): string[] {
    return this.options.hosts.map((host) => this.stateFolderOf(host));
  }

  stateFolderOf(host: string): string {
    return stateFolder(this.options.root, host);
  }

  configFileOf(host: string): string {
    return configFile(this.options.root, host);
  }

  /** Stops everything in order. What still waits for an answer over `client` must not lose its connection. */
  async stop(): Promise<void> {
    await Promise.all([...this.named('workflow'), ...this.named('eval'), ...this.named('init')].map(stop));
    await Promise.all([...this.named('run-'), ...this.named('worker-')].map(stop));
    await Promise.all(this.named('host-').map(stop));
    await Promise.all(this.named('temporal').map(stop));
    await this.store.remove();
  }
}

/** On a machine that is far too busy its model is looked at again: the first reading of a tokenizer takes long there. */
async function addServer({ pool }: RolloutClient, server: LlmServer): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await pool.add({ server });
      return;
    } catch (error) {
      const isBusy = error instanceof RolloutError && error.type === 'QueueTimeout';
      if (!isBusy || tries === MOST_FAILURES) throw error;
    }
  }
}

const stop = (member: Member) => member.stop();

function stateFolder(root: string, host: string): string {
  return path.join(root, host);
}

function configFile(root: string, host: string): string {
  return path.join(root, `${host}.toml`);
}

function writeConfiguration(options: ClusterOptions, host: string, address: string, store: Volume): string {
  const { root, capacity, silentLlmSeconds = SILENT_LLM_SECONDS, backend = 'bubblewrap' } = options;
  mkdirSync(stateFolder(root, host), { recursive: true });
  const file = configFile(root, host);
  const values = {
    ...options.settings,
    temporal: { address },
    llm: {
      firstByteSeconds: silentLlmSeconds,
      idleSeconds: silentLlmSeconds,
    },
    sandbox: {
      ...{ host, backend, capacity, silentSeconds: SILENT_SANDBOX_SECONDS },
      // The store's disk is small from the start, and made full on purpose.
      minFreeBytes: 0,
      ...(options.graderCapacity === undefined ? {} : { graderCapacity: options.graderCapacity }),
    },
    workers: {
      handlers: [...(options.handlers ?? [OWN_HANDLER])],
      runSlots: capacity,
      ...options.workers,
    },
    store: { folder: store.folder },
    state: { folder: stateFolder(root, host) },
  };
  writeFileSync(file, stringify(values));
  return file;
}

/** How a file of this project is run by Node. */
export function nodeCommand(file: string): string[] {
  return [process.execPath, '--import', import.meta.resolve('tsx'), path.join(PROJECT_ROOT, file)];
}

async function startNode(
  processes: Processes,
  name: string,
  [command, ...args]: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Child> {
  const child = processes.start({ name, command: command as string, args, env, ipc: true });
  await child.ready();
  return child;
}
