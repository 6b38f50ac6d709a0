import { Cluster } from '../../chaos/cluster.ts';
import type { BenchOptions, BenchResult } from '../main.ts';
import { rounded } from '../measure.ts';
import { withFolder } from './folder.ts';
import { clusterOptions, runTasks, steady } from './pipeline.ts';
import { SlottedServer } from './slotted-server.ts';
import { drawTasks } from './tasks.ts';

const HOSTS = [1, 2, 4];
/** Sandboxes of agents on each host: what limits it. */
const CAPACITY = 4;
const TASKS_PER_HOST = 20;

/**
 * The pipeline's tasks on one, two and four hosts, each a sandbox host and workers with a folder of their own, on one
 * machine; the LLM server takes all requests at once. Whoever submits them knows nothing of hosts.
 */
export async function benchHosts({ n, say }: BenchOptions): Promise<BenchResult> {
  const perHost = n ?? TASKS_PER_HOST;
  const per_s: Record<string, number> = {};
  for (const count of HOSTS) {
    const hosts = Array.from({ length: count }, (_, index) => `h${index + 1}`);
    const llm = await SlottedServer.start(Number.POSITIVE_INFINITY);
    try {
      per_s[`hosts_${count}`] = await withFolder('h-', async (root) => {
        const cluster = await Cluster.start({ ...clusterOptions(root, llm), hosts, capacity: CAPACITY });
        try {
          const tasks = drawTasks(perHost * count);
          const results = await runTasks(cluster, tasks, 'hosts', tasks.length);
          const spread = hosts.map((host) => results.filter((result) => result.host === host).length);
          say(`${count} hosts: ${steady(results).per_s}/s; rollouts of each: ${spread.join(', ')}`);
          return steady(results).per_s;
        } finally {
          await cluster.stop();
        }
      });
    } finally {
      await llm.close();
    }
  }
  const one = per_s.hosts_1 as number;
  return {
    bench: 'hosts',
    n: perHost,
    per_s,
    capacity: CAPACITY,
    peers: {},
    ratios: { two: rounded((per_s.hosts_2 as number) / one), four: rounded((per_s.hosts_4 as number) / one) },
  };
}
