import { Context } from '@temporalio/activity';
import { RolloutError } from '../contracts/failures.ts';
import { controlQueue, runQueue } from '../contracts/queues.ts';
import { type SandboxInfo, SandboxSpec } from '../contracts/sandbox.ts';
import type { AttemptInput, InitActivities, Placement } from '../contracts/stages.ts';
import { atEdge } from './errors.ts';
import { callHandler } from './handlers/call.ts';
import type { HandlerRegistry } from './handlers/registry.ts';
import { withHeartbeat } from './heartbeat.ts';
import { bindSandbox } from './sandbox/bound.ts';
import type { SandboxClient } from './sandbox/client.ts';
import type { Tool, ToolHost, ToolServer } from './tools/tool.ts';

export interface InitDependencies {
  readonly handlers: HandlerRegistry;
  readonly sandboxes: SandboxClient;
  /** What this host has for tools. */
  readonly host: ToolHost;
}

/** The init stage: a sandbox on this host, prepared by the task's handler. */
export function makeInitActivities({ handlers, sandboxes, host }: InitDependencies): InitActivities {
  return {
    init: (input) =>
      atEdge('HandlerFailed', () =>
        withHeartbeat(
          () => null,
          (context) => prepare(input, context.cancellationSignal),
        ),
      ),
  };

  async function prepare({ request, attempt }: AttemptInput, signal: AbortSignal): Promise<Placement> {
    const started = Date.now();
    const bounds = { signal, seconds: request.deadlines.initSeconds, late: 'StageDeadline' } as const;
    const { handler, data } = await callHandler('check', bounds, () => handlers.admit(request.task, signal));
    const sandbox = await sandboxes.create(
      {
        rolloutId: request.rolloutId,
        workflowRunId: Context.current().info.workflowExecution?.runId as string,
        attempt,
        ...(request.batchId === undefined ? {} : { batchId: request.batchId }),
        ...(request.groupId === undefined ? {} : { groupId: request.groupId }),
        spec: specFor(handler.sandbox ? handler.sandbox(data) : {}, handler.tools?.(data) ?? [], host),
      },
      signal,
    );
    try {
      const bound = bindSandbox(sandboxes, sandbox, signal);
      await callHandler('init', bounds, () => handler.init?.({ task: data, sandbox: bound, signal }));
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
      ms: Date.now() - started,
    };
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
