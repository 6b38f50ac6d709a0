import { Context } from '@temporalio/activity';
import { RolloutError } from '../contracts/failures.ts';
import { controlQueue, runQueue } from '../contracts/queues.ts';
import { type SandboxInfo, SandboxSpec } from '../contracts/sandbox.ts';
import type { InitActivities, InitInput, Placement, Shelf } from '../contracts/stages.ts';
import { atEdge } from './errors.ts';
import { callHandler } from './handlers/call.ts';
import { checkedDeadlines } from './handlers/checked.ts';
import type { HandlerRegistry } from './handlers/registry.ts';
import { withHeartbeat } from './heartbeat.ts';
import { bindSandbox } from './sandbox/bound.ts';
import type { SandboxClient } from './sandbox/client.ts';
import type { Tool, ToolHost, ToolServer } from './tools/tool.ts';
import type { AttemptKey, TrajectoryStore } from './trajectory/store.ts';

export interface InitDependencies {
  readonly handlers: HandlerRegistry;
  readonly sandboxes: SandboxClient;
  /** What this host has for tools. */
  readonly host: ToolHost;
  readonly store: TrajectoryStore;
  /** Told when the host counts one sandbox more. */
  readonly sandboxMade?: () => void;
}

/** The init stage: a sandbox on this host, prepared by the task's handler. */
export function makeInitActivities({
  handlers,
  sandboxes,
  host,
  store,
  sandboxMade,
}: InitDependencies): InitActivities {
  return {
    init: (input) =>
      atEdge('HandlerFailed', () =>
        withHeartbeat(
          () => null,
          (context) => prepare(input, context.cancellationSignal),
        ),
      ),
  };

  async function prepare({ request, attempt, shelf }: InitInput, signal: AbortSignal): Promise<Placement> {
    const started = Date.now();
    const workflowRunId = Context.current().info.workflowExecution?.runId as string;
    const key = { rolloutId: request.rolloutId, workflowRunId, attempt };
    const bounds = { signal, seconds: request.deadlines.initSeconds, late: 'StageDeadline' } as const;
    const { handler, data } = await callHandler('check', bounds, () => handlers.admit(request.task, signal));
    const deadlines = handler.deadlines && checkedDeadlines(handler.deadlines(data));
    const sandbox = await sandboxes.create(
      {
        ...key,
        ...(shelf ? { resumes: true } : {}),
        ...(request.batchId === undefined ? {} : { batchId: request.batchId }),
        ...(request.groupId === undefined ? {} : { groupId: request.groupId }),
        spec: specFor(handler.sandbox ? handler.sandbox(data) : {}, handler.tools?.(data) ?? [], host),
      },
      signal,
    );
    sandboxMade?.();
    try {
      if (shelf) {
        await putBack(sandbox, shelf, key, signal);
      } else {
        const bound = bindSandbox(sandboxes, sandbox, signal);
        await callHandler('init', bounds, () => handler.init?.({ task: data, sandbox: bound, signal }));
      }
    } catch (error) {
      // The workflow never learns of this sandbox, so nobody else would release it.
      await releaseOwn(sandbox);
      throw error;
    }
    return {
      host: sandbox.host,
      sandboxId: sandbox.sandboxId,
      workspace: sandbox.workspace,
      backend: sandbox.backend,
      runQueue: runQueue(sandbox.host),
      controlQueue: controlQueue(sandbox.host),
      ...(deadlines && { deadlines }),
      ms: Date.now() - started,
    };
  }

  /**
   * Puts a kept workspace and ledger into a fresh sandbox.
   * @throws RolloutError SandboxLost if the store holds no ledger of this run, SandboxFailed if it is not as fresh
   * as it has to be: a try of this stage that broke off had begun to fill it
   */
  async function putBack(
    { sandboxId, fence, backend }: SandboxInfo,
    shelf: Shelf,
    key: AttemptKey,
    signal: AbortSignal,
  ) {
    const records = await store.getLedger(key);
    if (!records)
      throw new RolloutError('SandboxLost', 'the workspace was kept by another run of the workflow');
    const { file, sha256 } = shelf;
    // Before the first turn no tool has run.
    const hadShells = records.some(({ kind }) => kind === 'sampled');
    if (backend !== 'none') {
      await sandboxes
        .restore(sandboxId, { fence, file, sha256, hadShells }, signal)
        .catch((error: unknown) => {
          if (!(error instanceof RolloutError) || error.type !== 'InvalidRequest') throw error;
          throw new RolloutError('SandboxFailed', error.message, { cause: error });
        });
    }
    for (const [seq, record] of records.entries()) {
      await sandboxes.appendLedger(sandboxId, { fence, seq, record }, signal);
    }
  }

  /** Ends a sandbox, unless a newer try of this stage has taken it over: then it is no longer ours to end. */
  async function releaseOwn({ sandboxId, fence }: SandboxInfo): Promise<void> {
    try {
      await sandboxes.release(sandboxId, { fence });
    } catch (error) {
      if (!(error instanceof RolloutError) || error.type !== 'FenceRefused') throw error;
    }
  }
}

/** The handler's sandbox, with what the tools need. Where both name a variable, the handler is right. */
function specFor(
  asked: Partial<SandboxSpec> | null,
  tools: readonly (Tool | ToolServer)[],
  host: ToolHost,
): SandboxSpec | null {
  if (asked === null) return null;
  const added = tools.map((tool) => tool.sandbox?.(host) ?? {});
  return SandboxSpec.parse({
    ...asked,
    binds: [...(asked.binds ?? []), ...added.flatMap(({ binds }) => binds ?? [])],
    environment: Object.assign({}, ...added.map(({ environment }) => environment), asked.environment),
  });
}
