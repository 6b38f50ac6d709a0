import assert from 'node:assert/strict';
import test from 'node:test';
import { GraderSandboxes, LANES } from '../../activities/sandbox/for-grader.ts';
import { loadConfig } from '../../config/load.ts';
import { SandboxSpec } from '../../contracts/sandbox.ts';
import { startHost } from './support.ts';

test('one grade leaves a place for others, whatever becomes of its sandboxes', () => {
  assert.ok(LANES < loadConfig().sandbox.graderCapacity);
});

const owner = { rolloutId: 'a', workflowRunId: 'run-1', attempt: 1 };

test('a grader’s sandboxes stand side by side, and those of an earlier call of it end', async (t) => {
  const { client } = await startHost(t, 'process');
  const spec = SandboxSpec.parse({});
  const create = (session: string, lane: number) =>
    client.create({ ...owner, purpose: 'grader', session, lane, spec });
  const first = await create('one', 1);
  const watches = [first, await create('one', 2)].map(({ sandboxId, fence }) =>
    client.watch(sandboxId, { fence }),
  );
  assert.equal((await client.stats()).graders, 2);
  const other = await create('two', 1); // there is no third place: those of the first call give theirs up
  assert.deepEqual(await Promise.all(watches), [{ event: 'superseded' }, { event: 'superseded' }]);
  assert.equal((await client.stats()).graders, 1);
  await client.release(other.sandboxId);
  assert.equal((await client.stats()).graders, 0);
});

test('work is done for each item in a fresh sandbox, results in order, and none is left', async (t) => {
  const { client } = await startHost(t, 'process');
  const graders = () => new GraderSandboxes(client, owner, {}, AbortSignal.timeout(60_000));
  const workspaces = new Set<string>();
  const items = [5, 1, 4, 2, 3];
  const results = await graders().each(items, async (sandbox, item) => {
    const { stdout } = await sandbox.exec({
      argv: ['bash', '-c', 'ls -A; pwd; touch mark'],
      timeoutMs: 10_000,
    });
    workspaces.add(stdout.text.trim());
    assert.ok((await client.stats()).graders <= 2);
    return item * 10;
  });
  assert.deepEqual(results, [50, 10, 40, 20, 30]);
  assert.equal(workspaces.size, items.length, 'nothing of one was there for another');
  assert.equal((await client.stats()).graders, 0);

  const done: number[] = [];
  const some = await graders().each(items, async (_, item) => done.push(item) && item, {
    atOnce: 1,
    enough: (item) => item === 4,
  });
  assert.deepEqual(
    [some, done],
    [
      [5, 1, 4],
      [5, 1, 4],
    ],
  );
  const failing = graders().each(items, async (_, item) => (item === 1 ? assert.fail('broken') : item));
  await assert.rejects(failing, /broken/);
  assert.equal((await client.stats()).graders, 0);
});
