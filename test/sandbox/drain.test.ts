import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { drainCommand } from '../../client/commands/drain.ts';
import { loadConfig } from '../../config/load.ts';
import { SandboxAdmission } from '../../workers/admission.ts';
import { Box, failure, startHost } from './support.ts';

test('a host that is drained lets its agents end and takes no other, until that is undone', async (t) => {
  const { client, stateDir } = await startHost(t);
  const config = loadConfig({ env: {}, flags: { state: { folder: stateDir } } });
  const notes: string[] = [];
  const drain = (within: number, undo = false) =>
    drainCommand(
      config,
      { within, moving: 0, undo },
      { json: false, note: (line) => notes.push(line), result: (_value, text) => notes.push(text?.() ?? '') },
    );
  const box = await Box.create(client);

  assert.equal(await drain(0), 1);
  assert.match(notes.at(-1) as string, /^1 rollouts are left on test-host: .* begin again elsewhere$/);
  assert.equal((await box.bash('echo goes on')).output.text.trim(), 'goes on');
  await assert.rejects(Box.create(client), failure('HostDrained', /test-host is being drained/));
  const admission = new SandboxAdmission({
    sandboxes: client,
    disk: { hasRoom: async () => true },
    slots: 8,
  });
  const giveUp = new AbortController();
  const waiting = admission.reserveSlot(undefined, giveUp.signal).then(() => 'admitted');
  // It asks several times meanwhile.
  assert.equal(await Promise.race([waiting, delay(400, 'waits')]), 'waits');
  const other = new AbortController();
  const given = admission.reserveSlot(undefined, other.signal);
  other.abort();
  await assert.rejects(given, (error) => error === other.signal.reason);

  const drained = drain(60);
  await client.release(box.info.sandboxId);
  assert.equal(await drained, 0);
  assert.match(notes.at(-1) as string, /^test-host is drained/);
  assert.equal((await client.stats()).capacity, 0);

  assert.equal(await drain(0, true), 0);
  assert.equal(await waiting, 'admitted');
  giveUp.abort();
});
