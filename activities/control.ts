import { rm } from 'node:fs/promises';
import { Context } from '@temporalio/activity';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import type { LedgerLine, LedgerRecord } from '../contracts/ledger.ts';
import type { SandboxInfo } from '../contracts/sandbox.ts';
import type {
  ControlActivities,
  HostActivities,
  ReleaseInput,
  Shelf,
  ShelveInput,
} from '../contracts/stages.ts';
import { atEdge } from './errors.ts';
import { withHeartbeat } from './heartbeat.ts';
import type { SandboxClient } from './sandbox/client.ts';
import type { AttemptKey, TrajectoryStore } from './trajectory/store.ts';
import { versionRange } from './trajectory/versions.ts';

/** Of a sandbox in which nothing runs: its ledger is all that there is to keep. */
const NO_WORKSPACE = { sha256: '', bytes: 0 };

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

    copySoFar: (key) =>
      atEdge('HostUnreachable', async () => {
        const lines = await sandboxes.readAttemptLedger(key);
        if (!(await store.getTerminal(key.rolloutId))) await store.putSoFar(key, recordsOf(lines));
      }),

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

    shelve: (input) =>
      atEdge('HostUnreachable', () =>
        withHeartbeat(
          () => null,
          () => shelve(input),
        ),
      ),

    release: (input) =>
      atEdge('HostUnreachable', async () => {
        // A full store must not keep the sandbox from ending.
        const problem = await rescue(input).then(() => null, messageOf);
        const receipt = await sandboxes.release(input.placement.sandboxId);
        const { processesKilled, killMs = null, ms } = receipt;
        return { processesKilled, released: { killMs, ms }, problem };
      }),
  };

  async function shelve({ request, attempt, placement, entry }: ShelveInput): Promise<Shelf | null> {
    const { sandboxId } = placement;
    const key = keyOf(request.rolloutId, attempt);
    const { file, kept } = await store.shelf(key, entry);
    let shelf = kept;
    if (!shelf) {
      const { workflowRunId } = key;
      const { info, ledger } = await sandboxes.attach(sandboxId, { workflowRunId, attempt, entry });
      const records = recordsOf(ledger);
      await store.putLedger(key, records);
      await sandboxes.kill(sandboxId, info.fence);
      const workspace = info.backend === 'none' ? NO_WORKSPACE : await keep(info, file);
      if (!workspace) return null;
      const versions = versionRange(records);
      shelf = { file, ...workspace, ...(versions ? { oldestVersion: versions[0] } : {}) };
      await store.putShelf(shelf);
    }
    await sandboxes.release(sandboxId);
    return shelf;
  }

  /** Keeps a workspace whole or not at all. */
  async function keep({ sandboxId, fence }: SandboxInfo, file: string) {
    const snapshot = await sandboxes.snapshot(sandboxId, { fence, file });
    if (snapshot.status === 'tooLarge') return null;
    const { sha256, bytes, omitted } = snapshot;
    if (omitted === 0) return { sha256, bytes };
    await rm(snapshot.file);
    return null;
  }

  /** Copies what was recorded to the store before the sandbox goes. */
  async function rescue({ request, attempt, placement }: ReleaseInput): Promise<void> {
    const key = keyOf(request.rolloutId, attempt);
    const lines = await ledgerOf(placement.sandboxId, key);
    if (lines.length > 0) await store.putLedger(key, recordsOf(lines));
  }

  /** Of a sandbox that was lost with an earlier host of this machine, what that had written. */
  async function ledgerOf(sandboxId: string, key: AttemptKey): Promise<LedgerLine[]> {
    try {
      return await sandboxes.readLedger(sandboxId);
    } catch (error) {
      if (!(error instanceof RolloutError) || error.type !== 'SandboxLost') throw error;
      return sandboxes.readAttemptLedger(key);
    }
  }
}

function keyOf(rolloutId: string, attempt: number): AttemptKey {
  return {
    rolloutId,
    workflowRunId: Context.current().info.workflowExecution?.runId as string,
    attempt,
  };
}

const recordsOf = (lines: readonly LedgerLine[]): LedgerRecord[] => lines.map(({ record }) => record);
