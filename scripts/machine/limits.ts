import assert from 'node:assert/strict';
import type { Machine } from './machine.ts';
import type { Passed } from './main.ts';

const TEST = '/usr/bin/node --import tsx --test-reporter=tap scripts/machine/inside/limits.ts';
const DOCTOR = '/usr/bin/node bin/rollouts.mjs doctor';
/** Milliseconds that the tests may take. */
const TESTS_MS = 2_400_000;

/** Who runs a sandbox host, and how the cgroup is delegated. */
const WHO: Readonly<Record<string, (command: string) => string>> = {
  'root, in a unit': (command) =>
    `cd /opt/rollouts && systemd-run --quiet --pipe --wait --same-dir -p Delegate=yes -E HOME=/root ${command}`,
  'an ordinary user, in a scope': (command) =>
    'cd /opt/rollouts && runuser -u alice -- env HOME=/home/alice XDG_RUNTIME_DIR=/run/user/$(id -u alice) ' +
    `systemd-run --quiet --user --scope --same-dir -p Delegate=yes ${command}`,
};

/** The kernel holds the limits of sandboxes, whoever their host is. */
export async function kernelLimits(machine: Machine, passed: Passed): Promise<void> {
  await machine.run('useradd --create-home alice; loginctl enable-linger alice');
  for (const [who, within] of Object.entries(WHO)) {
    const doctor = await machine.try(within(DOCTOR));
    assert.match(doctor.stdout, /^cgroups: hold limits below \/sys\/fs\/cgroup\/\S+\.(service|scope)$/m);
    const { code, stdout, stderr } = await machine.try(within(TEST), TESTS_MS);
    for (const [, result, what] of stdout.matchAll(/^ *(ok|not ok) \d+ - (.*)$/gm))
      passed(`${who}: ${result}: ${what}`);
    for (const [, what] of stdout.matchAll(/^ *# ((?:beside|sockets|pipes)\b.*)$/gm))
      passed(`${who}: ${what}`);
    assert.equal(code, 0, stdout + stderr);
  }
}
