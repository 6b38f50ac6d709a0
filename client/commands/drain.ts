import { setTimeout as delay } from 'node:timers/promises';
import { SandboxClient } from '../../activities/sandbox/client.ts';
import type { Config } from '../../config/load.ts';
import { sandboxHostAddress } from '../../workers/sandbox-host/address.ts';
import type { Output } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';

/** How often the host is asked whose agents are left. */
const ASK_AGAIN_MS = 500;
/** How often one that is left is told to leave: it may have had no sandbox yet to leave with. */
const TELL_AGAIN_MS = 10_000;

/** Options of `rollouts host drain`. */
export interface DrainOptions {
  /** Seconds that agents may take to end. */
  readonly within: number;
  /** Seconds that those left then may take to go on elsewhere. */
  readonly moving: number;
  /** Take new rollouts again. */
  readonly undo: boolean;
}

/**
 * `rollouts host drain`: this machine's sandbox host takes no new rollout; those that run may end in peace, and those
 * that have not in time go on on other hosts.
 * @returns 0 when no agent is left; 1 if some are when the time is over: the host still takes no other
 */
export async function drainCommand(config: Config, options: DrainOptions, output: Output): Promise<number> {
  const sandboxes = new SandboxClient(sandboxHostAddress(config.derived.stateFolder));
  const ask = () => sandboxes.drain({ draining: !options.undo });
  try {
    let left = await ask();
    const { host } = left;
    if (options.undo) {
      output.result(left, () => `${host} takes rollouts again`);
      return 0;
    }
    const untilNoneIsLeft = async (
      seconds: number,
      each?: (rolloutIds: readonly string[]) => Promise<void>,
    ) => {
      const giveUpAt = performance.now() + seconds * 1000;
      while (left.sandboxes > 0 && performance.now() < giveUpAt) {
        await each?.(left.rolloutIds);
        await delay(ASK_AGAIN_MS);
        const { sandboxes: before } = left;
        left = await ask();
        if (left.sandboxes !== before) output.note(`${left.sandboxes} are left`);
      }
    };
    output.note(`${host} takes no new rollout; ${left.sandboxes} are left`);
    await untilNoneIsLeft(options.within);
    if (left.sandboxes > 0 && options.moving > 0) {
      output.note('those go on on other hosts');
      const client = await RolloutClient.connect(config);
      await untilNoneIsLeft(options.moving, tellerOf(client, host)).finally(() => client.close());
    }
    output.result(left, () =>
      left.sandboxes === 0
        ? `${host} is drained: stop its workers, then the host`
        : `${left.sandboxes} rollouts are left on ${host}: wait longer by the same command, or stop the host, and ` +
          'they begin again elsewhere',
    );
    return left.sandboxes === 0 ? 0 : 1;
  } finally {
    await sandboxes.close();
  }
}

/** Tells rollouts to leave a host; each again when it has not for a while. */
function tellerOf(client: RolloutClient, host: string): (rolloutIds: readonly string[]) => Promise<void> {
  const told = new Map<string, number>();
  return async (rolloutIds) => {
    const before = performance.now() - TELL_AGAIN_MS;
    const due = rolloutIds.filter((id) => (told.get(id) ?? -Infinity) < before);
    for (const id of due) told.set(id, performance.now());
    await Promise.all(due.map((id) => client.leaveHost(id, host)));
  };
}
