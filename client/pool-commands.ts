import { Option } from 'commander';
import { POLICY_LABEL } from '../contracts/pool.ts';
import {
  poolAddCommand,
  poolChangeCommand,
  poolFloorCommand,
  poolListCommand,
  poolSwapCommand,
  type SwapFlags,
} from './commands/pool.ts';
import type { AddCommand } from './task-commands.ts';

const SERVERS = 'kind=url...';
const DRAIN = [
  '--drain-seconds <n>',
  'seconds that requests under way may take to end',
  Number,
  600,
] as const;

/** The commands below `rollouts pool`. `version` reads a policy version. */
export function addPoolCommands(add: AddCommand, version: (text: string) => number): void {
  add('list', 'the servers, their labels, versions and state', (config, output) =>
    poolListCommand(config, output),
  );
  add(
    `add <${SERVERS}>`,
    'take servers in, as for --server; --tokenizer where they show none',
    (config, output, args, flags) =>
      poolAddCommand(config, args, flags as Parameters<typeof poolAddCommand>[2], output),
  )
    .option('--labels <label...>', `what they are for; ${POLICY_LABEL} if not said`)
    .option('--version <n>', 'policy version of their weights; that of the others if not said', version)
    .option('--context-tokens <n>', 'context of one request, for servers that do not tell theirs', Number);
  add('remove <url>', 'no request begins there any more', (config, output, [url]) =>
    poolChangeCommand(config, output, (pool) => pool.remove(url as string)),
  );
  add('drain <url>', 'the same; returns when none is under way there', (config, output, [url], flags) => {
    const { drainSeconds } = flags as { drainSeconds: number };
    return poolChangeCommand(config, output, (pool) => pool.drain({ url: url as string, drainSeconds }));
  }).option(...DRAIN);
  add(
    'label <url> <label...>',
    'the labels that a server has from now on',
    (config, output, [url, ...labels]) =>
      poolChangeCommand(config, output, (pool) => pool.label({ url: url as string, labels })),
  );
  add(
    `swap [${SERVERS}]`,
    'bring another version of the weights into use; returns when no request begins on the old one',
    (config, output, args, flags) => poolSwapCommand(config, args, flags as unknown as SwapFlags, output),
  )
    .requiredOption('--version <n>', 'policy version of the weights', version)
    .addOption(
      new Option('--mode <mode>', 'how; blueGreen names other servers that have the weights')
        .choices(['drain', 'abort', 'inFlight', 'blueGreen'])
        .default('abort'),
    )
    .option('--folder <folder>', 'the weights, as the machines of the servers see them')
    .option('--label <label>', 'of the servers whose weights are swapped', POLICY_LABEL)
    .option(...DRAIN);
  add('floor <version>', 'end every rollout with an older token, as stale', (config, output, [text]) =>
    poolFloorCommand(config, version(text as string), output),
  );
}
