import type { Config } from '../../config/load.ts';
import { findLeaks } from '../../workers/sandbox-host/leaks.ts';
import type { Output } from '../output.ts';

/** `rollouts doctor --leaks`: what sandboxes of this machine left behind. @returns 0 if there is nothing */
export async function leaksCommand(config: Config, output: Output): Promise<number> {
  const leaks = await findLeaks(config.derived.stateFolder);
  output.result({ leaks }, () =>
    leaks.length === 0
      ? 'No process, mount, socket, terminal or folder is left of any sandbox that has ended.'
      : leaks.map(({ kind, what }) => `${kind}: ${what}`).join('\n'),
  );
  return leaks.length === 0 ? 0 : 1;
}
