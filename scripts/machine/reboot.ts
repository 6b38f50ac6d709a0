import assert from 'node:assert/strict';
import { beginRollout, recordOf } from './gateway.ts';
import type { Machine } from './machine.ts';
import type { Passed } from './main.ts';
import { assertClean } from './service.ts';
import { untilReady } from './units.ts';
import { until } from './until.ts';

const ROLLOUTS = ['cut-0', 'cut-1'];
/** So many that they take longer than it takes to see that some have run. */
const TURNS = 40;
const SANDBOXES = '/var/lib/rollouts/host/sandboxes';

/** The power goes while agents work: nothing of them stays, and each begins again and ends with a reward. */
export async function cutPower(machine: Machine, passed: Passed): Promise<void> {
  for (const id of ROLLOUTS) await beginRollout(machine, id, TURNS);
  await until('all agents to work', async () => {
    const { stdout } = await machine.try(`grep -l ^2 ${SANDBOXES}/*/workspace/calls`);
    return stdout.split('\n').length > ROLLOUTS.length;
  });
  const look = () => machine.run(`cat /proc/sys/kernel/random/boot_id; ls ${SANDBOXES}`);
  const [boot, ...sandboxes] = (await look()).trim().split('\n');
  passed(`${ROLLOUTS.length} agents work, in ${sandboxes.join(', ')}; the power goes`);

  await machine.cutPower();
  await untilReady(machine);
  passed('it has booted, and all units are up');
  const journal = await machine.run('journalctl -b -u rollouts-host -o cat');
  const lost = journal.split('\n').find((line) => line.includes('these rollouts lost their sandboxes'));
  assert.deepEqual((JSON.parse(lost ?? '{}') as { rollouts?: string[] }).rollouts?.sort(), ROLLOUTS, journal);
  const [nextBoot, ...left] = (await look()).trim().split('\n');
  assert.notEqual(nextBoot, boot);
  assert.deepEqual(
    left.filter((name) => sandboxes.includes(name)),
    [],
  );
  for (const id of ROLLOUTS) {
    const { outcome, reward, retried } = await recordOf(machine, id);
    assert.deepEqual([id, outcome, reward?.total], [id, 'completed', 1]);
    passed(
      `${id}: ${retried.map(({ type }: { type: string }) => type).join(', ')}; then ${outcome}, reward ${reward.total}`,
    );
    assert.ok(retried.length >= 1);
  }
  await assertClean(machine);
  passed('nothing is left of any sandbox');
}
