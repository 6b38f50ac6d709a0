import { z } from 'zod';
import { LlmServer } from '../contracts/llm.ts';
import {
  Attempts,
  Deadlines,
  FormatPenalty,
  Limits,
  PausedSandboxSeconds,
  Sampling,
  ServerLabel,
} from '../contracts/request.ts';
import { SandboxBackendName } from '../contracts/sandbox.ts';
import { TenantName, TenantShare } from '../contracts/tenant.ts';
import { ToolFormat } from '../contracts/tools.ts';

const Port = z.int().min(1).max(65_535);
const LogLevel = z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']);
/** 0: switched off. */
const MetricsPort = z.int().min(0).max(65_535).optional();
const Slots = z.int().min(1).max(10_000);

/** Names go into task queue names: letters, digits, dot, dash and underscore. */
const HostName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/);

/**
 * Everything configurable. Each section is a table of `rollouts.toml`; each value also has an environment
 * variable, `ROLLOUTS_<SECTION>_<KEY>` in upper snake case, and the commonest have a flag.
 */
export const ConfigSchema = z.strictObject({
  temporal: z
    .strictObject({
      address: z
        .string()
        .default('127.0.0.1:7233')
        .describe(
          'Where clients and workers connect; the stack that runs in this checkout is found by itself.',
        ),
      namespace: z.string().default('default').describe('Temporal namespace.'),
      encryptionKeys: z
        .string()
        .optional()
        .describe(
          'File of the keys that payloads in Temporal are encrypted with (`rollouts key add` makes it); the same for ' +
            'every process. Not set: they are in the clear.',
        ),
      port: Port.default(7233).describe('Port of the development server. Not set: the next free one.'),
      uiPort: Port.default(8233).describe('Port of its web UI. Not set: the next free one.'),
      uiUrl: z
        .url({ protocol: /^https?$/ })
        .optional()
        .describe(
          'Address of the Temporal UI, which the rollout page links to; that of the stack which runs in this ' +
            'checkout is found by itself.',
        ),
    })
    .prefault({}),
  llm: z
    .strictObject({
      servers: z
        .array(LlmServer)
        .default([])
        .describe(
          'LLM servers that `rollouts up` adds to the pool: [{url, dialect, policyVersion, tokenizer}]. None: it ' +
            'starts the embedded one.',
        ),
      pool: z
        .string()
        .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/)
        .default('default')
        .describe('Name of the pool of LLM servers that run workers sample from and commands change.'),
      leaseSeconds: z
        .number()
        .min(1)
        .max(3600)
        .default(30)
        .describe(
          'Seconds for which a run worker may act on what it knows of the pool, and which a change waits at most ' +
            'for workers that do not answer; taken when the pool is made.',
        ),
      toolFormat: ToolFormat.default('fenced').describe(
        'How the model writes tool calls: fenced (blocks that the prompt describes), or hermes, qwen3-coder or ' +
          'llama3-json, which its chat template describes.',
      ),
      port: Port.default(8089).describe('Port of the embedded server. Not set: the next free one.'),
      contextTokens: z
        .int()
        .min(256)
        .default(4096)
        .describe('Context of each request to the embedded server, in tokens.'),
      parallel: z
        .int()
        .min(1)
        .max(256)
        .optional()
        .describe(
          'Requests that the embedded server serves at once, each with a prompt cache of its own; one per ' +
            'processor, at most 4, if not set.',
        ),
      threads: z
        .int()
        .min(1)
        .max(1024)
        .optional()
        .describe('Threads of the embedded server; all processors if not set.'),
      model: z
        .string()
        .optional()
        .describe('GGUF file for the embedded server; the one that the set-up brought if not set.'),
      firstByteSeconds: z
        .number()
        .gt(0)
        .default(300)
        .describe(
          'Seconds that a request may wait for its first byte; a busy server lets requests wait their turn.',
        ),
      idleSeconds: z
        .number()
        .gt(0)
        .default(60)
        .describe('Seconds without a byte after the first one after which a request has failed.'),
    })
    .prefault({}),
  sandbox: z
    .strictObject({
      backend: SandboxBackendName.default('bubblewrap').describe(
        'bubblewrap, apptainer (also SingularityCE), or process, which isolates nothing.',
      ),
      apptainer: z
        .string()
        .optional()
        .describe('The apptainer or singularity program; the one on PATH if not set.'),
      image: z
        .string()
        .startsWith('/')
        .optional()
        .describe(
          'Image of apptainer sandboxes whose task names none: a SIF file or a folder. Not set: the host’s /usr.',
        ),
      imageBytes: z
        .int()
        .min(1024 ** 2)
        .default(64 * 1024 ** 3)
        .describe(
          'Most bytes that `rollouts image build` may have on disk: what an image unpacks to, with its layers and the result; and a file for each 16 KiB of it.',
        ),
      host: HostName.optional().describe(
        'Name of this machine among the hosts of one Temporal server; its host name if not set.',
      ),
      capacity: z.int().min(1).max(10_000).default(16).describe('Sandboxes of agents at once on this host.'),
      graderCapacity: z
        .int()
        .min(1)
        .max(10_000)
        .default(4)
        .describe(
          'Sandboxes of graders at once beside them; a grader waits for one, and takes three at most: with more than three, one that hangs holds up no other.',
        ),
      minFreeBytes: z
        .int()
        .min(0)
        .default(512 * 1024 ** 2)
        .describe(
          'Bytes that the disks of state.folder and of the store have to have free: with less, no rollout is begun on this host.',
        ),
      silentSeconds: z
        .number()
        .min(1)
        .default(900)
        .describe(
          'Seconds without a word about a sandbox before its rollout is looked up, and it is reaped if over.',
        ),
      unknownSeconds: z
        .number()
        .min(1)
        .default(86_400)
        .describe('Seconds that a silent sandbox is kept while Temporal cannot be asked.'),
      ledgerSeconds: z
        .number()
        .min(1)
        .default(604_800)
        .describe('Seconds that the host keeps its copy of a ledger after the last record.'),
    })
    .prefault({}),
  workers: z
    .strictObject({
      workflowSlots: z.int().min(2).max(10_000).default(100).describe('Workflow tasks at once.'),
      initSlots: Slots.default(8).describe('Init stages at once in one process.'),
      llmPacing: z
        .boolean()
        .default(false)
        .describe(
          'Whether init workers let there be only as many agents as keep the LLM servers full with few requests ' +
            'waiting there; docs/pool.md. Otherwise as many as there are sandboxes.',
        ),
      runSlots: Slots.optional().describe(
        'Agents at once in one process; the host’s capacity if not set. With fewer, sandboxes wait for a ' +
          'worker, and after rollout.hostLostSeconds their host counts as lost.',
      ),
      evalSlots: Slots.default(8).describe('Evaluate stages at once in one process.'),
      shutdownSeconds: z
        .number()
        .min(0)
        .default(10)
        .describe('Seconds that activities may take to end when a worker is told to stop.'),
      buildId: z
        .string()
        .min(1)
        .optional()
        .describe(
          'Version of the workflow workers in the Temporal worker deployment `rollouts`: they take work once ' +
            'this version is current or ramps up; docs/operations.md. Without one they take any.',
        ),
      handlers: z
        .array(z.string())
        .default([])
        .describe('Modules of further handlers: paths or package names.'),
      taskFolders: z
        .array(z.string().startsWith('/'))
        .default([])
        .describe(
          'Folders of sandbox hosts below which the images, repositories and packages lie that tasks of `swe` name, links ' +
            'followed; anywhere if none is named: then who writes tasks reads what the sandboxes’ user reads.',
        ),
      searchUrl: z
        .url({ protocol: /^https?$/ })
        .optional()
        .describe(
          'Search service that `stem` offers where a task brings no documents, asked as Search-R1’s retriever is; ' +
            'docs/graders.md.',
        ),
    })
    .prefault({}),
  gateway: z
    .strictObject({
      address: z
        .string()
        .default('127.0.0.1')
        .describe('Where the HTTP service listens; any but the loopback needs gateway.tokens.'),
      port: Port.default(8700).describe('Port of the HTTP service.'),
      url: z
        .url({ protocol: /^https?$/ })
        .optional()
        .describe(
          'Where browsers reach the HTTP service: with it, each rollout in the Temporal UI links to its page.',
        ),
      tokens: z
        .string()
        .optional()
        .describe(
          'File with the hashes of bearer tokens; without one everybody who reaches the port may do all.',
        ),
      certificate: z
        .string()
        .optional()
        .describe('PEM file; with gateway.key the service speaks HTTPS alone.'),
      key: z.string().optional().describe('PEM file of the certificate’s key.'),
      bodyBytes: z
        .int()
        .min(1024)
        .default(4 * 1024 ** 2)
        .describe('Largest body of a request, in bytes.'),
      connections: z.int().min(1).default(4096).describe('Connections at once.'),
      requestsPerSecond: z
        .int()
        .min(1)
        .default(2000)
        .describe('Requests that one address may make in a second; more are answered 429.'),
      taskFolder: z
        .string()
        .optional()
        .describe(
          'Folder that the files lie in which batches may name as sources. Not set: any file, for tokens of the scope ' +
            'admin and where no tokens are needed.',
        ),
      tenants: z
        .record(
          TenantName,
          z
            .strictObject({
              ...TenantShare.shape,
              openRollouts: z.int().min(1).optional().describe('Rollouts that it may have open.'),
            })
            .partial(),
        )
        .default({})
        .describe(
          'Shares of those whose token has this name, each {weight, priority, openRollouts}; one that is not named ' +
            'here has weight 1, priority 3 and no limit.',
        ),
      dataSources: z
        .record(z.string(), z.string())
        .default({
          swebench: 'swe',
          swegym: 'swe',
          r2egym: 'swe',
          'openai/gsm8k': 'math',
          deepscaler: 'math',
          aime: 'math',
          amc: 'math',
          codecontests: 'code',
          apps: 'code',
          taco: 'code',
          gpqa: 'stem',
        })
        .describe(
          'Handler of each data_source of POST /process; one that is not named here is a handler’s name.',
        ),
      addedServers: LlmServer.pick({ dialect: true, tokenizer: true, contextTokens: true })
        .strict()
        .extend({
          dialect: LlmServer.shape.dialect
            .unwrap()
            .default('prorl')
            .describe('How the servers speak that POST /add_llm_server names by their address alone.'),
          tokenizer: LlmServer.shape.tokenizer.describe(
            'Folder of their tokenizer, where they do not tell it.',
          ),
          contextTokens: LlmServer.shape.contextTokens.describe('Their context, where they do not tell it.'),
        })
        .prefault({}),
    })
    .prefault({}),
  codecServer: z
    .strictObject({
      address: z
        .string()
        .default('127.0.0.1')
        .describe(
          'Where `rollouts codec-server` listens, which opens encrypted payloads for the Temporal UI and CLI; any ' +
            'but the loopback needs gateway.tokens.',
        ),
      port: Port.default(8701).describe('Its port.'),
      origins: z
        .array(z.url())
        .default([])
        .describe(
          'Addresses of the web UIs whose pages may ask it, as in their address bar: `https://host:port`.',
        ),
    })
    .prefault({}),
  store: z
    .strictObject({
      folder: z
        .string()
        .optional()
        .describe(
          'Folder of trajectories and terminal records, shared by all workers; in the state folder if not set.',
        ),
    })
    .prefault({}),
  archive: z
    .strictObject({
      to: z
        .string()
        .regex(/^(\/|\.|s3:\/\/)/)
        .optional()
        .describe(
          'Where `rollouts archive` moves ledgers and trajectories, and where they are read from then: a folder, or ' +
            's3://bucket/prefix.',
        ),
      afterDays: z
        .number()
        .gt(0)
        .default(30)
        .describe('Days after which the files of a rollout that has ended are moved there.'),
      endpoint: z
        .url({ protocol: /^https?$/ })
        .optional()
        .describe('Address of an S3-compatible store; Amazon’s if not set.'),
      region: z
        .string()
        .optional()
        .describe(
          'Region of the bucket; not set: as AWS_REGION or the profile say, `us-east-1` with an endpoint.',
        ),
    })
    .prefault({}),
  state: z
    .strictObject({
      folder: z
        .string()
        .default('.rollouts')
        .describe('Folder of this checkout’s own state: server database, sandboxes, ledgers, logs.'),
    })
    .prefault({}),
  rollout: z
    .strictObject({
      sampling: Sampling.prefault({}),
      limits: Limits.prefault({}),
      deadlines: Deadlines.prefault({}),
      attempts: Attempts.prefault({}),
      serverLabel: ServerLabel.optional().describe(
        'Label of the LLM servers that rollouts are sampled on; `policy` if not set.',
      ),
      heartbeatTimeoutSeconds: z
        .number()
        .min(1)
        .max(3600)
        .default(15)
        .describe('Seconds without a heartbeat after which a worker counts as lost.'),
      hostLostSeconds: z
        .number()
        .min(1)
        .max(86_400)
        .default(30)
        .describe(
          'Seconds without a sign of life after which a host counts as lost, and the rollout starts elsewhere.',
        ),
      pausedSandboxSeconds: PausedSandboxSeconds,
      formatPenalty: FormatPenalty,
    })
    .prefault({}),
  metrics: z
    .strictObject({
      address: z
        .string()
        .default('127.0.0.1')
        .describe('Where workers and sandbox hosts serve their metrics, at /metrics, to whoever reaches it.'),
      workerPort: MetricsPort.describe(
        'Port of a worker’s metrics; 0: none. Not set: none, but with `rollouts up` the next free one from 9464.',
      ),
      hostPort: MetricsPort.describe(
        'Port of a sandbox host’s metrics; 0: none. Not set: none, but with `rollouts up` the next free one from 9465.',
      ),
    })
    .prefault({}),
  traces: z
    .strictObject({
      endpoint: z
        .url()
        .optional()
        .describe(
          'Where spans are sent by OTLP over HTTP: `http://127.0.0.1:4318/v1/traces`. Not set: where ' +
            'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT say; none of them: nothing is traced.',
        ),
    })
    .prefault({}),
  log: z
    .strictObject({
      level: LogLevel.default('info').describe('Least level of log lines.'),
      levels: z
        .strictObject({
          worker: LogLevel.optional().describe('Of workers, where it is another.'),
          sandboxHost: LogLevel.optional().describe('Of sandbox hosts.'),
          gateway: LogLevel.optional().describe('Of the gateway.'),
          codecServer: LogLevel.optional().describe('Of the codec server.'),
          temporal: LogLevel.optional().describe('Of what the Temporal SDK says in each of them.'),
        })
        .prefault({}),
    })
    .prefault({}),
});
export type ConfigValues = z.infer<typeof ConfigSchema>;
