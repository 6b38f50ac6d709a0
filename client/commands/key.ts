import type { Config } from '../../config/load.ts';
import { RolloutError } from '../../contracts/failures.ts';
import { addKey, useKey } from '../../temporal-config/encryption/keys.ts';
import type { Output } from '../output.ts';

/** `rollouts key add|use <id>`: the file of keys that payloads in Temporal are encrypted with. */
export async function keyCommand(
  config: Config,
  action: 'add' | 'use',
  id: string,
  output: Output,
): Promise<number> {
  const { encryptionKeys: file } = config.temporal;
  if (file === undefined) {
    throw new RolloutError('InvalidRequest', 'temporal.encryptionKeys: set it to the file to write');
  }
  ({ add: addKey, use: useKey })[action](file, id);
  output.result({ file, id, action }, () =>
    action === 'add'
      ? `${file} has key ${id} now; give the file to every process, start them again, then: rollouts key use ${id}`
      : `${id} is the key that encrypts in ${file} now; the others still open what they encrypted`,
  );
  return 0;
}
