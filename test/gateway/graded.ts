import fc from 'fast-check';
import { assembleTrajectory } from '../../activities/trajectory/assemble.ts';
import type { TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import { ledgers } from '../trajectory/records.ts';
import { usual } from '../workflows/scripted.ts';
import type { ScriptedService } from '../workflows/scripted-service.ts';

/** What every agent did, as its trajectory has it. */
const LEDGER = fc.sample(
  ledgers.filter((ledger) => ledger.length > 3),
  { numRuns: 1, seed: 1 },
)[0] as LedgerRecord[];

/** Each sample is rewarded as its task says: `rewards`, by its number. */
export function gradeAsTasksSay(service: ScriptedService, store: TrajectoryStore): void {
  service.workers.script.evaluate = async (input) => {
    const { request, attempt } = input;
    const { rewards } = request.task.data as { rewards: number[] };
    const total = rewards[request.sample] as number;
    const result = await usual.evaluate(input);
    const { rolloutId, workflowRunId } = result;
    const reward = { total, parts: {} };
    const kept = assembleTrajectory(LEDGER, { request, workflowRunId, attempt, reward, metadata: {} });
    const trajectory = await store.putTrajectory({ rolloutId, workflowRunId, attempt }, [kept]);
    // Above every floor that a test sets.
    const policyVersions: [number, number] = [1000, 1000];
    return store.putTerminal({ ...result, policyVersions, reward, trajectory });
  };
}
