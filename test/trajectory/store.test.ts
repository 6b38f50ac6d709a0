import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { assembleTrajectory } from '../../activities/trajectory/assemble.ts';
import { readTrajectory, TrajectoryStore } from '../../activities/trajectory/store.ts';
import { loadTools } from '../../config/tools.ts';
import { recordIdentity, recordTimings } from '../../contracts/record.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import { ledgers, request } from './records.ts';

let folder: string;
let store: TrajectoryStore;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'store-'));
  store = new TrajectoryStore(folder);
});
after(() => rm(folder, { recursive: true }));

const key = { rolloutId: 'batch:task:0', workflowRunId: 'run', attempt: 1 };
const context = { request, workflowRunId: 'run', attempt: 1, reward: null, metadata: {} };
const record = (rolloutId: string, reward: number): RolloutResult => ({
  ...recordIdentity({ ...request, rolloutId }, 'run'),
  outcome: 'completed',
  reward: { total: reward, parts: {} },
  truncation: null,
  cancel: null,
  failure: null,
  retried: [],
  attempt: 1,
  host: 'h',
  backend: 'bubblewrap',
  policyVersions: [0, 0],
  trajectory: null,
  startedAt: '2026-01-01T00:00:00.000Z',
  endedAt: '2026-01-01T00:00:09.000Z',
  timings: recordTimings('2026-01-01T00:00:00.000Z', '2026-01-01T00:00:09.000Z', {
    initMs: 1000,
    runMs: 5000,
    evaluateMs: 500,
  }),
});

test('a ledger comes back as it was kept', async () => {
  await fc.assert(
    fc.asyncProperty(ledgers, async (records) => {
      await store.putLedger(key, records);
      assert.deepEqual(await store.getLedger(key), records);
    }),
    { numRuns: 20 },
  );
});

test('a ledger that was altered on disk is refused', async () => {
  await store.putLedger(key, fc.sample(ledgers, 1)[0] ?? []);
  const file = (await readdir(folder, { recursive: true })).find((name) => name.endsWith('.ledger.jsonl'));
  const full = path.join(folder, file as string);
  await writeFile(full, (await readFile(full, 'utf8')).replace('"q"', '"Q"'));
  await assert.rejects(store.getLedger(key), { type: 'StoreCorrupt' });
});

test('a trajectory’s reference counts its tokens and proves its bytes', async () => {
  const records =
    fc.sample(
      ledgers.filter((ledger) => ledger.length > 3),
      1,
    )[0] ?? [];
  const trajectory = assembleTrajectory(records, context);
  const ref = await store.putTrajectory(key, [trajectory]);
  assert.equal(ref.promptTokens, trajectory.input_ids.length);
  assert.equal(ref.outputTokens, trajectory.output_ids.length);
  assert.equal(ref.sampledTokens, trajectory.loss_mask.filter((mask) => mask === 1).length);
  assert.deepEqual(await readTrajectory(ref), [trajectory]);
  await writeFile(fileURLToPath(ref.uri), '{}\n');
  await assert.rejects(readTrajectory(ref), { type: 'StoreCorrupt' });
});

test('of many terminal records written at once one stands, and everybody is told which', async () => {
  const stood = await Promise.all(
    Array.from({ length: 20 }, (_, reward) => store.putTerminal(record('contested', reward))),
  );
  const standing = await store.getTerminal('contested');
  assert.ok(standing);
  for (const told of stood) assert.deepEqual(told, standing);
  const files = await readdir(folder, { recursive: true });
  assert.deepEqual(
    files.filter((name) => name.endsWith('.draft')),
    [],
  );
});

test('queue time is what the stages leave of the whole', () => {
  assert.equal(record('x', 0).timings.queueMs, 2500);
  assert.equal(record('x', 0).timings.totalMs, 9000);
});

test('a store that cannot be written says so', async () => {
  const file = path.join(folder, 'a-file');
  await writeFile(file, '');
  await assert.rejects(new TrajectoryStore(path.join(file, 'below')).putLedger(key, []), {
    type: 'StoreFailed',
  });
});

test('a full disk is a typed failure, and nothing half-written stands', async () => {
  const flags = ['--dev-bind', '/', '/', '--size', '65536', '--tmpfs', '/mnt', '--unshare-user', '--'];
  const script = fileURLToPath(new URL('./full-disk.ts', import.meta.url));
  const { stdout } = await promisify(execFile)(loadTools().bwrap, [
    ...flags,
    ...[process.execPath, '--import', 'tsx', script, '/mnt/store'],
  ]);
  const said = JSON.parse(stdout);
  assert.equal(said.type, 'StoreFailed');
  assert.match(said.message, /ENOSPC/);
  assert.equal(said.kept, false);
});
