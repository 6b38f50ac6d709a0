import { setTimeout as delay } from 'node:timers/promises';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import type { Config } from '../../config/load.ts';
import { sandboxHostAddress } from '../../workers/sandbox-host/address.ts';
import type { Output } from '../output.ts';

/** How often the host is asked how many agents are left. */
const ASK_AGAIN_MS = 500;

/** Options of `rollouts host drain`. */
export interface DrainOptions {
  /** Seconds that agents may take to end. */
  readonly within: number;
  /** Take new rollouts again. */
  readonly undo: boolean;
}

/**
 * `rollouts host drain`: this machine's sandbox host takes no new rollout, and those that run end in peace.
 * @returns 0 when no agent is left; 1 if some are when the time is over: the host still takes no other
 */
export async function drainCommand(config: Config, options: DrainOptions, output: Output): Promise<number> {
  const sandboxes = new SandboxClient(sandboxHostAddress(config.derived.stateFolder));
  try {
    const before = await sandboxes.drain({ draining: !options.undo });
    if (options.undo) {
      output.result(before, () => `${before.host} takes rollouts again`);
      return 0;
    }
    const giveUpAt = performance.now() + options.within * 1000;
    let stats = before;
    output.note(`${stats.host} takes no new rollout; ${stats.sandboxes} are left`);
    while (stats.sandboxes > 0 && performance.now() < giveUpAt) {
      await delay(ASK_AGAIN_MS);
      const { sandboxes: left } = stats;
      stats = await sandboxes.stats();
      if (stats.sandboxes !== left) output.note(`${stats.sandboxes} are left`);
    }
    output.result(stats, () =>
      stats.sandboxes === 0
        ? `${stats.host} is drained: stop its workers, then the host`
        : `${stats.sandboxes} rollouts are left on ${stats.host}: wait longer by the same command, or stop the host, and ` +
          'they begin again elsewhere',
    );
    return stats.sandboxes === 0 ? 0 : 1;
  } finally {
    await sandboxes.close();
  }
}
