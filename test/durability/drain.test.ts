import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readTrajectory } from '../../activities/trajectory/store.ts';
import { drainCommand } from '../../client/commands/drain.ts';
import { loadConfig } from '../../config/load.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import { decode } from '../support/letters.ts';
import { gate } from '../workflows/kept.ts';
import { CONVERSATION, counting, REPLIES, startService, TURNS, until } from './support.ts';

/** What the first command in a sandbox says that takes the place of another. */
const NEW_SHELL = '\n[the shell was restarted in /workspace; its variables are gone]';

async function conversationOf({ trajectory }: RolloutResult): Promise<string> {
  const [line] = await readTrajectory(trajectory as never);
  return decode([...(line?.input_ids ?? []), ...(line?.output_ids ?? [])]);
}

test('what is left on a drained host goes on on another with every turn, paused or not, sandbox or none', async (t) => {
  const reached = new Map(['runs', 'paused', 'bare'].map((id) => [id, gate()]));
  const s = await startService(t, {
    // The second turn is not over before it is broken off.
    onGenerate: async (rolloutId, turn, signal) => {
      const here = reached.get(rolloutId);
      if (!here || turn !== (rolloutId === 'bare' ? 0 : 1)) return;
      reached.delete(rolloutId);
      here.open();
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    },
  });
  await s.startRunWorker();
  const gates = [...reached.values()];
  for (const id of ['runs', 'paused', 'bare']) {
    // Where nothing is lost, a machine that is slow must not look as if something were.
    const patience = { heartbeatTimeoutSeconds: 60, hostLostSeconds: 300 };
    await s.client.start({ ...counting(id, id === 'bare' ? 'say' : 'count'), ...patience });
  }
  for (const { passed } of gates) await passed;
  assert.equal((await s.client.pause('paused'))?.stage, 'paused');

  await s.startHost('another');
  const { address, stateDir } = s;
  const config = loadConfig({ env: {}, flags: { state: { folder: stateDir }, temporal: { address } } });
  const notes: string[] = [];
  const note = (line: string) => void notes.push(line);
  const output = { json: false, note, result: (_value: unknown, text: () => string) => note(text()) };
  assert.equal(await drainCommand(config, { within: 0, moving: 900, undo: false }, output), 0);
  assert.equal(notes[0], 'test-host takes no new rollout; 3 are left');
  assert.match(notes.at(-1) as string, /^test-host is drained/);

  await until(async () => (await s.client.status('paused')).host === null, 'its workspace is kept');
  assert.equal((await s.client.status('paused')).stage, 'paused');
  await s.client.resume('paused');
  for (const id of ['runs', 'paused', 'bare']) {
    const result = await s.client.result(id);
    // A machine that is slow may cost a try of a stage; nothing has begun again.
    assert.deepEqual([result.outcome, result.attempt, result.host], ['completed', 1, 'another'], id);
    const conversation = await conversationOf(result);
    if (id === 'bare') {
      assert.equal(conversation, `Say.[assistant]${REPLIES[0]}`);
      continue;
    }
    assert.equal(result.reward?.total, TURNS - 1, 'each call ran once');
    assert.equal(conversation, CONVERSATION.replace('[tool]2', `[tool]2${NEW_SHELL}`), id);
  }
});
