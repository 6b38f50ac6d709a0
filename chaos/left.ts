import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { SandboxClient } from '../activities/sandbox/client.ts';
import { sandboxHostAddress } from '../workers/sandbox-host/address.ts';
import { findLeaks } from '../workers/sandbox-host/leaks.ts';

/** Milliseconds in which a host's audit has to find what nobody released. */
const AUDIT_MS = 20_000;

/** Sandboxes that hosts which are up still hold when every rollout has ended, and what they left behind. */
export async function leftOnHosts(stateFolders: readonly string[]): Promise<string[]> {
  const problems = stateFolders.map(async (folder) => {
    const client = new SandboxClient(sandboxHostAddress(folder));
    try {
      const giveUpAt = Date.now() + AUDIT_MS;
      for (;;) {
        const { sandboxes } = await client.stats();
        if (sandboxes === 0) break;
        if (Date.now() > giveUpAt) return [`the host in ${folder} still holds ${sandboxes} sandboxes`];
        await delay(100);
      }
      return sentences(await findLeaks(folder));
    } finally {
      await client.close();
    }
  });
  return (await Promise.all(problems)).flat();
}

/** What is left of a cluster that has stopped: leaks of its hosts, processes and mounts of its folder. */
export async function leftOf(root: string, stateFolders: readonly string[]): Promise<string[]> {
  const leaks = await Promise.all(stateFolders.map(findLeaks));
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  return [
    ...sentences(leaks.flat()),
    ...mounts.filter((line) => line.includes(` ${root}/`)).map((line) => `still mounted: ${line}`),
    ...processesOf(root).map((process) => `still running: ${process}`),
  ];
}

function sentences(leaks: Awaited<ReturnType<typeof findLeaks>>): string[] {
  return leaks.map(({ kind, what }) => `leaked ${kind}: ${what}`);
}

/** Processes whose command line or environment names a folder. */
function processesOf(root: string): string[] {
  return readdirSync('/proc').flatMap((pid) => {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return [];
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ');
      const names = command + readFileSync(`/proc/${pid}/environ`, 'latin1');
      return names.includes(`${root}/`) ? [`${pid} ${command}`] : [];
    } catch {
      return []; // it has ended, or is somebody else's
    }
  });
}
