import path from 'node:path';
import type { TestContext } from 'node:test';
import { Client, Connection } from '@temporalio/client';
import { NativeConnection, Worker, type WorkerOptions } from '@temporalio/worker';
import { z } from 'zod';
import { fenced } from '../../activities/agent/parsers/fenced.ts';
import { makeControlActivities } from '../../activities/control.ts';
import { makeEvaluateActivities } from '../../activities/evaluate.ts';
import { bash, defineHandler } from '../../activities/handlers/kit.ts';
import { HandlerRegistry } from '../../activities/handlers/registry.ts';
import { makeInitActivities } from '../../activities/init.ts';
import { makeRunActivities } from '../../activities/run.ts';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { RolloutClient } from '../../client/rollout-client.ts';
import { loadConfig } from '../../config/load.ts';
import { loadTools } from '../../config/tools.ts';
import type { GenerateRequest } from '../../contracts/llm.ts';
import {
  controlQueue,
  evalQueue,
  initQueue,
  RECORDS_QUEUE,
  runQueue,
  WORKFLOW_QUEUE,
} from '../../contracts/queues.ts';
import { lookUpIn } from '../../workers/sandbox-host/lookup.ts';
import { startSandboxHost } from '../../workers/sandbox-host/server.ts';
import { hostOptions, temporaryFolder } from '../sandbox/support.ts';
import { decode, letterPolicy } from '../support/letters.ts';
import { startTestServer } from '../support/temporal.ts';
import { workflowBundle } from '../support/workflows.ts';

export { until } from '../support/until.ts';

/** Turns of every rollout here: each but the last calls the shell once. */
export const TURNS = 4;
/** What the policy says, and what the tool answers: a call that ran twice would count on. */
export const REPLIES = [
  ...Array.from(
    { length: TURNS - 1 },
    (_, turn) => `\`\`\`bash\necho ${turn} >> calls; wc -l < calls\n\`\`\``,
  ),
  'done',
];
/** The whole conversation of an undisturbed rollout. */
export const CONVERSATION = `Count.[assistant]${REPLIES[0]}[tool]1[assistant]${REPLIES[1]}[tool]2[assistant]${REPLIES[2]}[tool]3[assistant]done`;

/** What a test may hold up. */
export interface Hooks {
  onGenerate?: (rolloutId: string, turn: number, signal: AbortSignal) => void | Promise<void>;
  onInit?: () => void | Promise<void>;
  onEvaluate?: () => void | Promise<void>;
}

/** A handler whose outcome shows which calls ran. */
export function countingHandlers(hooks: Hooks = {}): HandlerRegistry {
  const handler = defineHandler({
    name: 'count',
    description: 'Count calls.',
    schema: z.object({}),
    example: {},
    tools: () => [bash],
    prompt: async () => [{ role: 'user', content: 'Count.' }],
    init: async () => hooks.onInit?.(),
    outcome: async ({ sandbox }) => ({
      calls: (await sandbox.readFile(`${sandbox.workspace}/calls`)).toString().trim().split('\n'),
    }),
    evaluate: async ({ outcome }) => {
      await hooks.onEvaluate?.();
      const { length } = outcome.calls as string[];
      return { total: length, parts: { calls: length } };
    },
  });
  const bare = defineHandler({
    name: 'say',
    description: 'Say something; nothing runs.',
    schema: z.object({}),
    example: {},
    sandbox: () => null,
    prompt: async () => [{ role: 'user', content: 'Say.' }],
    evaluate: async ({ outcome }) => ({ total: 1, parts: { said: String(outcome.answer).length } }),
  });
  return new HandlerRegistry([handler as never, bare as never]);
}

/** The recorded policy for each rollout. */
export function policiesOf(hooks: Hooks) {
  return {
    open: async (rolloutId: string) => {
      const onGenerate = async ({ promptIds }: GenerateRequest, signal: AbortSignal) => {
        await hooks.onGenerate?.(rolloutId, decode(promptIds).split('[tool]').length - 1, signal);
      };
      return { ...letterPolicy({ replies: REPLIES, onGenerate }), close: () => {} };
    },
  };
}

/** A run worker of the host of these tests. */
export async function makeRunWorker(
  connection: NativeConnection,
  sandboxes: SandboxClient,
  store: TrajectoryStore,
  hooks: Hooks = {},
  wrap: (run: ReturnType<typeof makeRunActivities>['run']) => unknown = (run) => run,
  host = 'test-host',
): Promise<Worker> {
  const { run } = makeRunActivities({
    handlers: countingHandlers(hooks),
    sandboxes,
    policies: policiesOf(hooks),
    parser: fenced,
    store,
  });
  return Worker.create({
    connection,
    taskQueue: runQueue(host),
    activities: { run: wrap(run) as typeof run },
    ...QUICK,
  });
}

const QUICK: Omit<WorkerOptions, 'taskQueue'> = {
  maxHeartbeatThrottleInterval: '200ms',
  shutdownForceTime: '5s',
};

/** The real thing in this process but for its LLM: a server, a sandbox host, all stages but run. */
export async function startService(t: Pick<TestContext, 'after'>, hooks: Hooks = {}) {
  const bundle = await workflowBundle();
  const stateDir = temporaryFolder(t);
  const server = await startTestServer();
  const { address } = server;
  const client = await RolloutClient.connect(loadConfig({ env: {}, flags: { temporal: { address } } }));
  const connection = await NativeConnection.connect({ address });
  const lookUp = await Connection.connect({ address });
  const startHost = (folder: string, name: string) =>
    startSandboxHost({
      ...hostOptions(folder, 'bubblewrap', 16),
      host: name,
      audit: { silentMs: 1000 },
      isOpen: lookUpIn(new Client({ connection: lookUp })),
    });
  const host = await startHost(stateDir, 'test-host');
  const sandboxes = new SandboxClient(host);
  const store = new TrajectoryStore(path.join(stateDir, 'store'));
  const handlers = countingHandlers(hooks);
  const { evaluate, conclude } = makeEvaluateActivities({ handlers, store, sandboxes });
  /** Workers of one host but for its run worker. */
  const onHost = (name: string, sandboxes: SandboxClient): WorkerOptions[] => [
    {
      taskQueue: initQueue(),
      activities: makeInitActivities({ handlers, sandboxes, host: loadTools(), store }),
    },
    { taskQueue: controlQueue(name), activities: makeControlActivities({ sandboxes, store }) },
  ];
  const each: WorkerOptions[] = [
    // Broken off within a task its thread fails: on a busy machine that takes longer than it may for all others.
    { taskQueue: WORKFLOW_QUEUE, workflowBundle: bundle, shutdownForceTime: '5m' },
    { taskQueue: evalQueue(), activities: { evaluate } },
    { taskQueue: RECORDS_QUEUE, activities: { conclude } },
    ...onHost('test-host', sandboxes),
  ];
  const workers: Worker[] = [];
  const running: Promise<void>[] = [];
  const closing: (() => Promise<void>)[] = [];
  const run = (worker: Worker) => {
    workers.push(worker);
    running.push(worker.run());
  };
  const make = (options: WorkerOptions | undefined, over = connection) =>
    Worker.create({ connection: over, ...QUICK, ...(options as WorkerOptions) });
  for (const options of each) run(await make(options));
  t.after(async () => {
    for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
    await Promise.allSettled(running); // one that a failed test holds up is left
    await client.close();
    await sandboxes.close();
    await host.close();
    for (const close of closing) await close();
    await lookUp.close();
    await connection.close();
    await server.stop();
  });
  return {
    address,
    stateDir,
    client,
    sandboxes,
    store,
    host: host.host,
    /** Tells the worker of a queue to stop and starts another in its place. */
    replace: async (taskQueue: string) => {
      const at = each.findIndex((options) => options.taskQueue === taskQueue);
      workers[at]?.shutdown();
      await running[at];
      run(await make(each[at]));
    },
    startRunWorker: async () => run(await makeRunWorker(connection, sandboxes, store, hooks)),
    /** Another host, with all its workers. */
    startHost: async (name: string) => {
      const another = await startHost(temporaryFolder(t), name);
      const client = new SandboxClient(another);
      // One connection has no two workers of one queue.
      const own = await NativeConnection.connect({ address });
      closing.push(async () => {
        await client.close();
        await another.close();
        await own.close();
      });
      for (const options of onHost(name, client)) run(await make(options, own));
      run(await makeRunWorker(own, client, store, hooks, undefined, name));
    },
  };
}

/** A request for one of these rollouts. */
export function counting(rolloutId: string, handler: 'count' | 'say' = 'count') {
  return {
    rolloutId,
    task: { handler, id: rolloutId, data: {} },
    heartbeatTimeoutSeconds: 2,
    attempts: { rollout: 3, stage: 10 },
  };
}
