import { Context } from '@temporalio/activity';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import type { LedgerLine } from '../contracts/ledger.ts';
import type { ControlActivities, HostActivities, ReleaseInput } from '../contracts/stages.ts';
import { atEdge } from './errors.ts';
import type { SandboxClient } from './sandbox/client.ts';
import type { TrajectoryStore } from './trajectory/store.ts';

export interface ControlDependencies {
  readonly sandboxes: SandboxClient;
  readonly store: TrajectoryStore;
}

/** Short commands to one sandbox host; they overtake everything that waits on the host's run queue. */
export function makeControlActivities({
  sandboxes,
  store,
}: ControlDependencies): ControlActivities & HostActivities {
  return {
    abortMany: (input) => atEdge('HostUnreachable', () => sandboxes.abortMany(input)),

    // Its heartbeats say what the host holds, for whoever looks at it in the UI.
    presence: async () => {
      const context = Context.current();
      const beat = async () => context.heartbeat(await sandboxes.stats());
      await beat();
      const timer = setInterval(() => {
        beat().catch((error) => context.log.warn('the host does not answer', { problem: messageOf(error) }));
      }, 10_000);
      try {
        await context.cancelled.catch(() => {}); // told to stop: the host takes its leave
      } finally {
        clearInterval(timer);
      }
    },

    abort: ({ sandboxId, reason }) => atEdge('HostUnreachable', () => sandboxes.abort(sandboxId, { reason })),
    pause: ({ sandboxId, entry }) => atEdge('HostUnreachable', () => sandboxes.pause(sandboxId, { entry })),

    release: (input) =>
      atEdge('HostUnreachable', async () => {
        // A full store must not keep the sandbox from ending.
        const problem = await rescue(input).then(() => null, messageOf);
        const receipt = await sandboxes.release(input.placement.sandboxId);
        return { processesKilled: receipt.processesKilled, problem };
      }),
  };

  /** Copies what was recorded to the store before the sandbox goes. */
  async function rescue({ request, attempt, placement }: ReleaseInput): Promise<void> {
    const workflowRunId = Context.current().info.workflowExecution?.runId as string;
    const lines = await ledgerOf(placement.sandboxId);
    if (lines.length === 0) return;
    await store.putLedger(
      { rolloutId: request.rolloutId, workflowRunId, attempt },
      lines.map((line) => line.record),
    );
  }

  async function ledgerOf(sandboxId: string): Promise<LedgerLine[]> {
    try {
      return await sandboxes.readLedger(sandboxId);
    } catch (error) {
      // Released before, or lost with its host: there is nothing left to rescue, which is no failure.
      if (error instanceof RolloutError && error.type === 'SandboxLost') return [];
      throw error;
    }
  }
}
