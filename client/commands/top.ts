import { setTimeout as pause } from 'node:timers/promises';
import colors from 'picocolors';
import type { Config } from '../../config/load.ts';
import { temporalConnection } from '../../config/temporal-connection.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { Output } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';
import { linesOf, type Marks } from '../top/draw.ts';
import { Lookout } from '../top/look.ts';
import { Screen } from '../top/screen.ts';
import type { TopState } from '../top/state.ts';

/** Columns where no terminal says how many. */
const PLAIN_WIDTH = 120;
/** A character like any other in raw mode. */
const CTRL_C = '\u0003';
const PLAIN: Marks = { heading: (text) => text, problem: (text) => text };
const COLORED: Marks = { heading: colors.bold, problem: colors.red };

/**
 * `rollouts top`: how the service stands, drawn again every so many seconds until q or Ctrl-C. Once with `once` or
 * `--json`, and where standard output is no terminal.
 */
export async function topCommand(
  config: Config,
  { once, seconds }: { readonly once: boolean; readonly seconds: number },
  output: Output,
): Promise<number> {
  if (!once && !output.json && process.stdout.isTTY) {
    await live(config, seconds);
    return 0;
  }
  const client = await RolloutClient.connect(config);
  const lookout = new Lookout(client, addressOf(config));
  try {
    const state = await lookout.look();
    output.result(state, () => linesOf(state, process.stdout.columns ?? PLAIN_WIDTH, PLAIN).join('\n'));
    return 0;
  } finally {
    await lookout.close();
    await client.close();
  }
}

async function live(config: Config, seconds: number): Promise<void> {
  const stop = new AbortController();
  const end = () => stop.abort();
  const keys = (typed: Buffer) => {
    if (['q', 'Q', CTRL_C].includes(typed.toString())) end();
  };
  const { stdin, stdout } = process;
  const screen = new Screen(stdout);
  let lines: (width: number) => string[] = () => ['looking …'];
  const draw = () => screen.draw(lines(stdout.columns));
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, end);
  stdout.on('resize', draw);
  if (stdin.isTTY) stdin.setRawMode(true).on('data', keys);
  try {
    draw();
    for await (const state of states(config, seconds, stop.signal)) {
      lines = (width) =>
        typeof state === 'string'
          ? [COLORED.problem(state.replaceAll(/\s+/g, ' ').slice(0, width)), 'It is tried again; q ends.']
          : linesOf(state, width, COLORED);
      draw();
    }
  } finally {
    screen.close();
    stdout.off('resize', draw);
    for (const signal of signals) process.off(signal, end);
    if (stdin.isTTY) stdin.off('data', keys).setRawMode(false).pause();
  }
}

/**
 * How the service stands, again and again; while no Temporal server answers, a text that says so.
 * @throws RolloutError InvalidRequest if none is known
 */
async function* states(
  config: Config,
  seconds: number,
  stop: AbortSignal,
): AsyncGenerator<TopState | string> {
  let client: RolloutClient | undefined;
  let lookout: Lookout | undefined;
  const stopped = new Promise<undefined>((resolve) => {
    stop.addEventListener('abort', () => resolve(undefined), { once: true });
  });
  const look = async () => {
    try {
      client ??= await RolloutClient.connect(config);
      lookout ??= new Lookout(client, addressOf(config));
      return await lookout.look();
    } catch (error) {
      if (error instanceof RolloutError) throw error;
      return messageOf(error);
    }
  };
  try {
    while (!stop.aborted) {
      // Nobody who wants to leave waits for an answer.
      const state = await Promise.race([look(), stopped]);
      if (state !== undefined) yield state;
      await Promise.race([pause(seconds * 1000, undefined, { ref: false }), stopped]);
    }
  } finally {
    await lookout?.close();
    await client?.close();
  }
}

function addressOf(config: Config): string {
  return temporalConnection(config).connectionOptions.address ?? config.temporal.address;
}
