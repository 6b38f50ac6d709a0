import { z } from 'zod';
import { LlmServer } from '../contracts/llm.ts';
import { Attempts, Deadlines, Limits, Sampling } from '../contracts/request.ts';
import { SandboxBackendName } from '../contracts/sandbox.ts';

const Port = z.int().min(1).max(65_535);
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
      /** Where clients and workers connect. Default: the stack that runs in this checkout. */
      address: z.string().default('127.0.0.1:7233'),
      namespace: z.string().default('default'),
      /** Ports of the development server. Not given: these if free, else the next free ones. */
      port: Port.default(7233),
      uiPort: Port.default(8233),
    })
    .prefault({}),
  llm: z
    .strictObject({
      /** LLM servers to use. Empty: the embedded one is started. */
      servers: z.array(LlmServer).default([]),
      port: Port.default(8089),
      /** Context of the embedded server, in tokens for each of its parallel slots. */
      contextTokens: z.int().min(256).default(4096),
      parallel: z.int().min(1).max(256).default(4),
      threads: z.int().min(1).max(1024).optional(),
      /** GGUF file for the embedded server. Default: the one the set-up brought. */
      model: z.string().optional(),
      /** Seconds without a byte from a server after which a request counts as failed. */
      idleSeconds: z.number().gt(0).default(60),
    })
    .prefault({}),
  sandbox: z
    .strictObject({
      backend: SandboxBackendName.default('bubblewrap'),
      /** Name of this machine among the hosts of one Temporal server. Default: its host name. */
      host: HostName.optional(),
      /** Sandboxes at once on this host. */
      capacity: z.int().min(1).max(10_000).default(16),
    })
    .prefault({}),
  workers: z
    .strictObject({
      workflowSlots: z.int().min(2).max(10_000).default(100),
      initSlots: Slots.default(8),
      /**
       * Agents at once in one run worker. Default: the host's capacity, since a sandbox whose run no worker
       * takes within `rollout.hostLostSeconds` counts as lost.
       */
      runSlots: Slots.optional(),
      evalSlots: Slots.default(8),
      /** Seconds that activities may take to end when a worker is told to stop. */
      shutdownSeconds: z.number().min(0).default(10),
      /** Module paths or package names of further handlers. */
      handlers: z.array(z.string()).default([]),
    })
    .prefault({}),
  store: z
    .strictObject({
      /** Folder of trajectories and terminal records; the same for all workers. Default: in the state folder. */
      folder: z.string().optional(),
    })
    .prefault({}),
  state: z
    .strictObject({
      /** Folder of this checkout's own state: server database, sandboxes, ledgers, logs. */
      folder: z.string().default('.rollouts'),
    })
    .prefault({}),
  rollout: z
    .strictObject({
      sampling: Sampling.prefault({}),
      limits: Limits.prefault({}),
      deadlines: Deadlines.prefault({}),
      attempts: Attempts.prefault({}),
      heartbeatTimeoutSeconds: z.number().min(1).max(3600).default(30),
      hostLostSeconds: z.number().min(1).max(86_400).default(30),
    })
    .prefault({}),
  log: z
    .strictObject({ level: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']).default('info') })
    .prefault({}),
});
export type ConfigValues = z.infer<typeof ConfigSchema>;
