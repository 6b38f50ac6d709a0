import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { hostPaths } from '../../workers/sandbox-host/paths.ts';
import { decode } from '../support/letters.ts';
import { gate } from '../workflows/kept.ts';
import { CONVERSATION, counting, startService, TURNS, until } from './support.ts';

/** Places between a look and an act: records of turn 1 and of the end, a tool call, the copy to the store. */
const PLACES = ['at-sampled', 'at-observed', 'at-call', 'at-end', 'at-store'];
/** The stopped worker wakes while its successor works, or when that has ended. */
const EARLY = PLACES.filter((place) => place !== 'at-end' && place !== 'at-store').map(
  (place) => `early-${place}`,
);
const LATE = PLACES.map((place) => `late-${place}`);

test('a worker stopped between its look and its act changes nothing when it wakes', async (t) => {
  const goOn = gate();
  t.after(() => goOn.open());
  const early = new Set<string>();
  const s = await startService(t, {
    onGenerate: async (rolloutId, turn) => {
      if (turn < TURNS - 1 || !rolloutId.startsWith('early')) return;
      early.add(rolloutId);
      await goOn.passed;
    },
  });
  const all = [...EARLY, ...LATE];
  const stopped = startStoppedWorker(s.address, s.stateDir, s.store.folder, all.length);
  t.after(() => stopped.kill('SIGKILL'));
  const acts = new Map<string, string>();
  const ends = new Map<string, string[]>(all.map((id) => [id, []]));
  stopped.on('message', (said: { rolloutId: string; act?: string; end?: string }) => {
    if (said.act !== undefined) acts.set(said.rolloutId, said.act);
    if (said.end !== undefined) ends.get(said.rolloutId)?.push(said.end);
  });
  for (const id of all) await s.client.start(counting(id));
  await until(() => stateOf(stopped) === 'T', 'all rollouts are at their places');

  await s.startRunWorker();
  const late = await Promise.all(LATE.map((id) => s.client.result(id)));
  await until(() => early.size === EARLY.length, 'the others are in their last turn');
  const before = everythingIn(s.stateDir);
  process.kill(stopped.pid as number, 'SIGCONT');
  // Both: it may hold a second task of a rollout, which gives up while the act of the first is still at its write.
  const hasGivenUp = (id: string) => acts.has(id) && ends.get(id)?.length;
  await until(() => all.every(hasGivenUp), 'the stopped worker has given up');
  assert.deepEqual(everythingIn(s.stateDir), before, 'ledgers, workspaces and store are as they were');
  for (const id of EARLY) {
    assert.match(acts.get(id) ?? '', /^FenceRefused: /, `the act of ${id}`);
    assert.deepEqual(new Set(ends.get(id)), new Set(['FenceRefused']), `the runs of ${id}`);
  }
  for (const id of LATE.filter((one) => !one.endsWith('at-store'))) {
    assert.match(acts.get(id) ?? '', /^SandboxLost: /, `the act of ${id}`);
  }

  goOn.open();
  for (const result of [...late, ...(await Promise.all(EARLY.map((id) => s.client.result(id))))]) {
    assert.equal(result.outcome, 'completed', result.rolloutId);
    assert.equal(result.attempt, 1);
    // A worker that stands still is given tasks that it had asked for before.
    assert.deepEqual(new Set(result.retried.map(({ type }) => type)), new Set(['WorkerLost']));
    assert.equal(result.reward?.total, TURNS - 1, 'each call ran once');
    const [trajectory] = await readTrajectory(result.trajectory as never);
    assert.equal(decode([...(trajectory?.input_ids ?? []), ...(trajectory?.output_ids ?? [])]), CONVERSATION);
  }
});

function startStoppedWorker(...args: [string, string, string, number]): ChildProcess {
  const file = fileURLToPath(new URL('./stopped-worker.ts', import.meta.url));
  return fork(file, args.map(String), { execArgv: ['--import', 'tsx'] });
}

/** The state of a process as the kernel names it: T is stopped. */
function stateOf({ pid, exitCode }: ChildProcess): string {
  assert.equal(exitCode, null, 'the worker runs');
  return /\) (\w)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1] ?? '';
}

/** Ledgers, workspaces and stored files by path. */
function everythingIn(stateDir: string): Record<string, string> {
  const { ledgers, sandboxes } = hostPaths(stateDir);
  const files = [ledgers, sandboxes, path.join(stateDir, 'store')].flatMap((folder) =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && !/control/.test(entry.parentPath))
      .map((entry) => path.join(entry.parentPath, entry.name)),
  );
  return Object.fromEntries(files.map((file) => [file, readFileSync(file, 'utf8')]));
}
