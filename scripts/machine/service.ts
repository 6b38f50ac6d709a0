import assert from 'node:assert/strict';
import { beginRollout, recordOf } from './gateway.ts';
import type { Machine } from './machine.ts';
import type { Passed } from './main.ts';
import { installUnits, UNITS } from './units.ts';

const HOSTS_GROUP = '/sys/fs/cgroup/system.slice/rollouts-host.service';

/** The units, as docs/production.md installs them, run a rollout. */
export async function serviceUnits(machine: Machine, passed: Passed): Promise<void> {
  await installUnits(machine);
  passed(`all units are up: ${UNITS.join(' ')}`);
  await beginRollout(machine, 'first', 4);
  const first = await recordOf(machine, 'first');
  assert.deepEqual([first.outcome, first.reward?.total, first.retried], ['completed', 1, []]);
  passed(`a rollout through the gateway: ${first.outcome}, reward ${first.reward.total}`);
  await assertClean(machine);
  passed('nothing is left of its sandbox');
}

/** The host has divided its cgroup, and nothing is left of any sandbox, found from outside. */
export async function assertClean(machine: Machine): Promise<void> {
  await machine.run(
    'ROLLOUTS_STATE_FOLDER=/var/lib/rollouts node /opt/rollouts/bin/rollouts.mjs doctor --leaks',
  );
  assert.equal(await machine.run(`cd ${HOSTS_GROUP} && ls -d */`), 'host/\n');
}
