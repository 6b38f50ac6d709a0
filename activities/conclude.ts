import type { RolloutResult } from '../contracts/result.ts';
import type { ConcludeInput } from '../contracts/stages.ts';
import { assembleTrajectories } from './trajectory/assemble.ts';
import type { TrajectoryStore } from './trajectory/store.ts';
import { versionRange } from './trajectory/versions.ts';

/**
 * Keeps the terminal record of a rollout that was not graded, with the trajectory of what the store has of it.
 * @returns the record that stands
 * @throws RolloutError StoreFailed, StoreCorrupt
 */
export async function conclude(
  store: TrajectoryStore,
  { request, attempt, result }: ConcludeInput,
): Promise<RolloutResult> {
  const { workflowRunId } = result;
  const key = { rolloutId: request.rolloutId, workflowRunId, attempt };
  const records = (await store.getLedger(key)) ?? [];
  const sampled = records.some((record) => record.kind === 'sampled');
  const context = { request, workflowRunId, attempt, reward: null, metadata: { host: result.host } };
  return store.putTerminal({
    ...result,
    policyVersions: versionRange(records),
    trajectory: sampled ? await store.putTrajectory(key, assembleTrajectories(records, context)) : null,
  });
}
