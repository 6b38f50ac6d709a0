import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Archive, type Objects, openArchive } from '../../activities/trajectory/archive.ts';
import { moveOld } from '../../activities/trajectory/move-old.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import { age, assertWhole, failing, filesOf, keep, movesWhatIsOld, options } from './archive.ts';

let root: string;
before(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'archive-'));
});
after(() => rm(root, { recursive: true }));

/** In memory. */
function objects(): Objects {
  const kept = new Map<string, Uint8Array>();
  return {
    place: 'memory',
    put: async (name, bytes) => void kept.set(name, bytes),
    get: async (name) => kept.get(name),
  };
}

test('what is old is moved to a folder, read from there, and nothing else is touched', async () => {
  const archive = openArchive({ to: path.join(root, 'archived') });
  assert.ok(archive);
  await movesWhatIsOld(path.join(root, 'store'), archive);
});

test('wherever it fails nothing is lost, and the next run ends it', async () => {
  // Three files: each is looked for, put, and read back.
  for (const [kind, times] of [
    ['put', 3],
    ['get', 6],
  ] as const) {
    for (let count = 1; count <= times; count++) {
      const inner = objects();
      const broken = failing(inner, kind, count, () => Promise.reject(new Error('gone away')));
      const store = new TrajectoryStore(path.join(root, `${kind}-${count}`), new Archive(inner));
      const kept = await keep(store, 'a');
      await age(store, 'a');
      const { rollouts, problems } = await moveOld(store, broken, options());
      assert.deepEqual([rollouts, problems], [0, [{ rollout: 'a', problem: 'gone away' }]]);
      assert.equal((await filesOf(store, 'a')).length, 3, `${kind} ${count}`);
      assert.equal((await moveOld(store, new Archive(inner), options())).rollouts, 1);
      assert.equal((await filesOf(store, 'a')).length, 1);
      await assertWhole(store, kept);
    }
  }
});

test('what comes back as another is not deleted', async () => {
  const inner = objects();
  const broken = failing(inner, 'get', 2, async () => Buffer.from('not what was put'));
  const store = new TrajectoryStore(path.join(root, 'other'), broken);
  const kept = await keep(store, 'a');
  await age(store, 'a');
  const { problems } = await moveOld(store, broken, options());
  assert.match(problems[0]?.problem ?? '', /failing\/.*gz/);
  assert.equal((await filesOf(store, 'a')).length, 3);
  await assertWhole(store, kept);
});

test('killed in the middle, the next run ends it', async () => {
  const [folder, to] = [path.join(root, 'killed'), path.join(root, 'killed-archive')];
  const archive = openArchive({ to });
  assert.ok(archive);
  const store = new TrajectoryStore(folder, archive);
  const kept = await Promise.all(Array.from({ length: 12 }, (_, index) => keep(store, `r${index}`)));
  for (const { rolloutId } of kept) await age(store, rolloutId);
  const script = fileURLToPath(new URL('./kill-archive.ts', import.meta.url));
  const child = execFile(process.execPath, ['--import', 'tsx', script, folder, to, '20']);
  const [, signal] = await once(child, 'exit');
  assert.equal(signal, 'SIGKILL');
  const left = await Promise.all(kept.map(async ({ rolloutId }) => (await filesOf(store, rolloutId)).length));
  assert.ok(left.some((count) => count === 3) && left.some((count) => count < 3), `files left: ${left}`);
  for (const each of kept) await assertWhole(store, each);
  await moveOld(store, archive, options());
  for (const each of kept) {
    assert.equal((await filesOf(store, each.rolloutId)).length, 1);
    await assertWhole(store, each);
  }
});

test('a place that is none is refused', () => {
  assert.equal(openArchive({}), undefined);
  assert.throws(() => openArchive({ to: 's3://' }), { type: 'InvalidRequest', message: /archive\.to/ });
  assert.throws(() => openArchive({ to: 's3://Not A Bucket/x' }), { type: 'InvalidRequest' });
  assert.equal(openArchive({ to: 's3://rollouts/of/mine/' })?.place, 's3://rollouts/of/mine');
});
