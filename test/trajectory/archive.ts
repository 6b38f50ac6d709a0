// What an archive has to do, wherever it lies: for archive.test.ts and real-s3.ts.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { Archive, type Objects } from '../../activities/trajectory/archive.ts';
import { assembleTrajectory } from '../../activities/trajectory/assemble.ts';
import { type MoveOldOptions, moveOld } from '../../activities/trajectory/move-old.ts';
import { readTrajectory, TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import { recordIdentity, recordTimings } from '../../contracts/record.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { ledgers, request } from './records.ts';

const OLD = new Date('2026-01-01T00:00:09Z');

/** A rollout in a store, as it is after its end. */
export interface Kept {
  readonly rolloutId: string;
  readonly records: readonly LedgerRecord[];
  readonly trajectory: Trajectory;
  readonly result: RolloutResult;
}

/** Moves what is older than a day by default. */
export const options = (changed: Partial<MoveOldOptions> = {}): MoveOldOptions => ({
  ...{ before: Date.now() - 86_400_000, open: new Set<string>(), dryRun: false },
  ...changed,
});

/** Keeps a ledger, a trajectory and a terminal record; `unfinished`: without the last. */
export async function keep(store: TrajectoryStore, rolloutId: string, unfinished = false): Promise<Kept> {
  const records = fc.sample(
    ledgers.filter((ledger) => ledger.length > 3),
    1,
  )[0] as LedgerRecord[];
  const key = { rolloutId, workflowRunId: 'run', attempt: 1 };
  const context = {
    request: { ...request, rolloutId },
    workflowRunId: 'run',
    attempt: 1,
    reward: null,
    metadata: {},
  };
  const trajectory = assembleTrajectory(records, context);
  await store.putLedger(key, records);
  const ref = await store.putTrajectory(key, [trajectory]);
  const [startedAt, endedAt] = ['2026-01-01T00:00:00.000Z', OLD.toISOString()] as const;
  const timings = recordTimings(startedAt, endedAt, { initMs: 1, runMs: 1, evaluateMs: 1 });
  const result: RolloutResult = {
    ...recordIdentity({ ...request, rolloutId }, 'run'),
    ...{
      outcome: 'completed',
      reward: { total: 1, parts: {} },
      truncation: null,
      cancel: null,
      failure: null,
    },
    ...{ retried: [], attempt: 1, host: 'h', backend: 'bubblewrap', policyVersions: [0, 0], trajectory: ref },
    ...{ startedAt, endedAt, timings },
  };
  if (!unfinished) await store.putTerminal(result);
  return { rolloutId, records, trajectory, result };
}

/** Makes all that a store has of a rollout old. */
export async function age(store: TrajectoryStore, rolloutId: string): Promise<void> {
  for (const name of await filesOf(store, rolloutId)) await utimes(path.join(store.folder, name), OLD, OLD);
}

/** Paths in the store of a rollout's files. */
export async function filesOf(store: TrajectoryStore, rolloutId: string): Promise<string[]> {
  const names = await readdir(store.folder, { recursive: true });
  return names.filter((name) => name.split(path.sep)[1] === rolloutId && path.basename(name).includes('.'));
}

/** Everything that was kept is read as it was, wherever it lies now. */
export async function assertWhole(store: TrajectoryStore, { rolloutId, ...kept }: Kept): Promise<void> {
  assert.deepEqual(await store.getTerminal(rolloutId), kept.result);
  const key = { rolloutId, workflowRunId: 'run', attempt: 1 };
  assert.deepEqual(await store.getLedger(key), kept.records);
  const ref = kept.result.trajectory;
  assert.ok(ref);
  assert.deepEqual(await readTrajectory(ref, store.archive), [kept.trajectory]);
}

/** What holds of every kind of archive: old ones are moved, read from there, and nothing else is touched. */
export async function movesWhatIsOld(folder: string, archive: Archive): Promise<void> {
  const store = new TrajectoryStore(folder, archive);
  const [old, young, open, unfinished, torn] = [
    await keep(store, 'batch:old:0'),
    await keep(store, 'batch:young:0'),
    await keep(store, 'batch:open:0'),
    await keep(store, 'batch:unfinished:0', true),
    await keep(store, 'batch:torn:0'),
  ];
  for (const { rolloutId } of [old, open, unfinished]) await age(store, rolloutId);
  const damaged = fileURLToPath(torn.result.trajectory?.uri ?? '');
  await writeFile(damaged, `${await readFile(damaged, 'utf8')} `);
  await age(store, torn.rolloutId);

  const left = options({ open: new Set([open.rolloutId]) });
  const would = await moveOld(store, archive, { ...left, dryRun: true });
  assert.equal(would.rollouts, 1);
  assert.equal((await filesOf(store, old.rolloutId)).length, 3);
  const moved = await moveOld(store, archive, left);
  assert.deepEqual([moved.rollouts, moved.files], [1, 2]);
  assert.deepEqual(
    moved.problems.map(({ rollout, problem }) => [rollout, /checksum/.test(problem)]),
    [[torn.rolloutId, true]],
  );
  const [record, ...none] = await filesOf(store, old.rolloutId);
  assert.deepEqual([path.basename(record as string), none], ['terminal.json', []]);
  for (const each of [young, open]) assert.equal((await filesOf(store, each.rolloutId)).length, 3);
  assert.equal((await filesOf(store, unfinished.rolloutId)).length, 2);
  for (const each of [old, young, open]) await assertWhole(store, each);
  assert.ok(await archive.get(record as string), 'the record has a copy');
  const again = await moveOld(store, archive, left);
  assert.deepEqual([again.rollouts, again.files], [0, 0]);
  // Without the archive it is known as ended, and what is missing is named.
  assert.deepEqual(await new TrajectoryStore(folder).getTerminal(old.rolloutId), old.result);
  const ref = old.result.trajectory;
  assert.ok(ref && !existsSync(fileURLToPath(ref.uri)));
  await assert.rejects(readTrajectory(ref), { type: 'StoreFailed' });
}

/** Objects that behave until the `count`th call of one kind, which `how` answers. */
export function failing(
  inner: Objects,
  kind: 'put' | 'get',
  count: number,
  how: () => Promise<Uint8Array | undefined>,
): Archive {
  let calls = 0;
  const due = (which: typeof kind) => which === kind && ++calls === count;
  return new Archive({
    place: 'failing',
    put: async (name, bytes) => void (due('put') ? await how() : await inner.put(name, bytes)),
    get: (name) => (due('get') ? how() : inner.get(name)),
  });
}
