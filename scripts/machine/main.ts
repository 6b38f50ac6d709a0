// `npm run test:machine`: a virtual machine with systemd and cgroups of version 2, which the tests' machines have not. In it
// the kernel's own limits on sandboxes are tried, the systemd units of temporal-config/production, installed as
// docs/production.md says, run rollouts, and the power is cut while agents work. Root on Debian; it installs what it needs
// (user-mode Linux), and keeps the machine's Debian in the cache folder. `-- limits` or `-- units` runs only that, `-- units
// reboot` those two.
import { rm } from 'node:fs/promises';
import { bringTemporalServer, cacheFolder } from '../production/temporal-server.ts';
import { toldToStop } from '../told-to-stop.ts';
import { type Disks, makeDisks } from './disks.ts';
import { kernelLimits } from './limits.ts';
import { Machine } from './machine.ts';
import { bringPackages } from './needs.ts';
import { cutPower } from './reboot.ts';
import { serviceUnits } from './service.ts';

/** Says that something was as it should be. */
export type Passed = (what: string) => void;

const WHAT: Readonly<Record<string, (machine: Machine, passed: Passed) => Promise<void>>> = {
  limits: kernelLimits,
  units: serviceUnits,
  reboot: cutPower,
};

async function main(wanted: readonly string[]): Promise<void> {
  const unknown = wanted.filter((name) => !(name in WHAT));
  if (unknown.length > 0) throw new Error(`${unknown.join(', ')}: there are ${Object.keys(WHAT).join(', ')}`);
  await bringPackages();
  const cache = cacheFolder();
  const programs = await bringTemporalServer(cache);
  const since = performance.now();
  const passed: Passed = (what) =>
    console.log(`${((performance.now() - since) / 1000).toFixed(0).padStart(5)} s  ${what}`);
  let disks: Disks | undefined;
  let machine: Machine | undefined;
  const story = async () => {
    disks = await makeDisks(cache, programs);
    machine = await Machine.boot(disks);
    const said =
      '. /etc/os-release; echo "$PRETTY_NAME, Linux $(uname -r), $(systemctl --version | head -1)"';
    passed(`boot of ${(await machine.run(said)).trim()}`);
    for (const name of wanted.length > 0 ? wanted : Object.keys(WHAT)) await WHAT[name]?.(machine, passed);
  };
  try {
    await Promise.race([story(), toldToStop()]);
  } finally {
    await machine?.stop();
    if (disks) await rm(disks.folder, { recursive: true, force: true });
  }
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (error: unknown) => {
    console.error(error instanceof Error ? error.stack : String(error));
    process.exit(1);
  },
);
