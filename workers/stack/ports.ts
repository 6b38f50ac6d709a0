import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { Config } from '../../config/load.ts';
import { choosePort } from '../../temporal-config/ports.ts';

/** Where metrics are served if nobody says otherwise. */
const METRICS_PORTS = { worker: 9464, host: 9465 };

const Ports = z.object({
  temporal: z.int(),
  ui: z.int(),
  llm: z.int(),
  codec: z.int(),
  /** 0: there are none. */
  workerMetrics: z.int(),
  hostMetrics: z.int(),
});
export type Ports = z.infer<typeof Ports>;

/**
 * The ports of this state folder's stack: those that a person set, else those it had last time, so that a
 * client that waits finds it again, else the first that are free.
 * @throws RolloutError InvalidRequest if one that a person set is taken.
 */
export async function portsFor({
  temporal,
  llm,
  codecServer,
  metrics,
  origins,
  derived,
}: Config): Promise<Ports> {
  const file = path.join(derived.stateFolder, 'ports.json');
  const last = lastPorts(file);
  const choose = (setting: string, wanted: number, had: number | undefined) => {
    const set = setting in origins;
    return choosePort(setting, set ? wanted : (had ?? wanted), set);
  };
  const forMetrics = (name: 'workerPort' | 'hostPort', usual: number, had: number | undefined) => {
    const set = metrics[name];
    return set === 0 ? 0 : choose(`metrics.${name}`, set ?? usual, had || undefined);
  };
  const ports = {
    temporal: await choose('temporal.port', temporal.port, last?.temporal),
    ui: await choose('temporal.uiPort', temporal.uiPort, last?.ui),
    llm: await choose('llm.port', llm.port, last?.llm),
    codec: await choose('codecServer.port', codecServer.port, last?.codec),
    workerMetrics: await forMetrics('workerPort', METRICS_PORTS.worker, last?.workerMetrics),
    hostMetrics: await forMetrics('hostPort', METRICS_PORTS.host, last?.hostMetrics),
  };
  writeFileSync(`${file}.new`, JSON.stringify(ports));
  renameSync(`${file}.new`, file);
  return ports;
}

function lastPorts(file: string): Ports | undefined {
  if (!existsSync(file)) return undefined;
  // One of another version of this software knows fewer.
  return Ports.safeParse(JSON.parse(readFileSync(file, 'utf8'))).data;
}
