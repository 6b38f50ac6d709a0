import type { Config } from '../../config/load.ts';
import type { PoolReport, PoolState } from '../../contracts/pool.ts';
import { POLICY_LABEL, versionOf } from '../../contracts/pool.ts';
import type { SwapMode } from '../../contracts/pool-commands.ts';
import { type Output, tableOf } from '../output.ts';
import type { PoolClient } from '../pool.ts';
import { RolloutClient } from '../rollout-client.ts';
import { type ServerFlags, serversOf } from '../server-flags.ts';

/** `rollouts pool list`. */
export function poolListCommand(config: Config, output: Output): Promise<number> {
  return withPool(config, async (pool) => {
    const state = await pool.state();
    output.result(state, () => textOf(state));
    return 0;
  });
}

/** `rollouts pool add`: each of the servers. @returns 1 if any is refused, else 0 */
export function poolAddCommand(
  config: Config,
  texts: readonly string[],
  {
    labels,
    version,
    contextTokens,
    tokenizer,
  }: ServerFlags & { labels?: string[]; version?: number; contextTokens?: number },
  output: Output,
): Promise<number> {
  return change(config, output, async (pool) => {
    const servers = serversOf({ server: texts, ...(tokenizer === undefined ? {} : { tokenizer }) });
    let report: PoolReport | undefined;
    for (const server of servers) {
      const policyVersion = version ?? versionOf(await pool.state(), labels?.[0] ?? POLICY_LABEL) ?? 0;
      const more = contextTokens === undefined ? {} : { contextTokens };
      report = await pool.add({
        server: { ...server, policyVersion, ...more },
        ...(labels ? { labels } : {}),
      });
    }
    return report as PoolReport;
  });
}

/** `rollouts pool floor`. */
export function poolFloorCommand(config: Config, version: number, output: Output): Promise<number> {
  return change(config, output, async (_, client) => (await client.raiseFloor(version)).pool);
}

/** `rollouts pool remove|drain|label`. */
export function poolChangeCommand(
  config: Config,
  output: Output,
  act: (pool: PoolClient) => Promise<PoolReport>,
): Promise<number> {
  return change(config, output, act);
}

/** Flags of `rollouts pool swap`. */
export interface SwapFlags extends ServerFlags {
  readonly mode: SwapMode;
  readonly version: number;
  readonly folder?: string;
  readonly label: string;
  readonly drainSeconds: number;
}

/** `rollouts pool swap`: in place with `--folder`, or by other servers that have the weights already. */
export function poolSwapCommand(
  config: Config,
  texts: readonly string[],
  { mode, version, folder, label, drainSeconds, tokenizer }: SwapFlags,
  output: Output,
): Promise<number> {
  return change(config, output, (pool) => {
    const common = { version, label, drainSeconds };
    if (mode !== 'blueGreen') return pool.swap({ mode, ...common, folder: folder ?? '' });
    const servers = serversOf({ server: texts, ...(tokenizer === undefined ? {} : { tokenizer }) });
    return pool.swap({ mode, ...common, servers });
  });
}

/** Makes a change and says how the pool stands. @returns 1 if a server failed or did not drain in time, else 0 */
function change(
  config: Config,
  output: Output,
  act: (pool: PoolClient, client: RolloutClient) => Promise<PoolReport>,
): Promise<number> {
  return withPool(config, async (pool, client) => {
    const report = await act(pool, client);
    output.result(report, () => {
      const problems = [
        ...report.failed.map(({ url, why }) => `out: ${url}: ${why}`),
        ...report.silent.map((worker) => `did not answer, its lease has run out: ${worker}`),
        ...(report.drained ? [] : ['requests are still under way on drained servers']),
      ];
      return [textOf(report.state), ...problems].join('\n');
    });
    return report.failed.length === 0 && report.drained ? 0 : 1;
  });
}

async function withPool(
  config: Config,
  act: (pool: PoolClient, client: RolloutClient) => Promise<number>,
): Promise<number> {
  const client = await RolloutClient.connect(config);
  try {
    return await act(client.pool, client);
  } finally {
    await client.close();
  }
}

function textOf({ pool, members, floor, workers }: PoolState): string {
  const rows = members.map(({ server, labels, state, why, facts }) => [
    server.url,
    server.dialect,
    labels.join(', '),
    String(server.policyVersion),
    why === null ? state : `${state}: ${why}`,
    facts.model,
  ]);
  const table = tableOf(['server', 'kind', 'labels', 'version', 'state', 'model'], rows);
  return `${table}\npool "${pool}", floor ${floor}, ${workers.length} run workers`;
}
