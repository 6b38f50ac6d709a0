import { openArchive } from '../../activities/trajectory/archive.ts';
import type { RecordedSequence } from '../../activities/trajectory/assemble.ts';
import { readTrajectory, TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { Config } from '../../config/load.ts';
import { valueAt, valueNames } from '../../config/names.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { RolloutFilter } from '../../contracts/filter.ts';
import type { RolloutResult } from '../../contracts/result.ts';
import type { RolloutStatus } from '../../contracts/signals.ts';
import type { Trajectory } from '../../contracts/trajectory.ts';
import { Following } from '../following.ts';
import type { RolloutListing } from '../listing.ts';
import { type Output, tableOf } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';

/** `rollouts show`: the terminal record or where an open rollout is, and the conversation, of an open one so far. */
export async function showCommand(config: Config, rolloutId: string, output: Output): Promise<number> {
  const store = new TrajectoryStore(config.derived.storeFolder, openArchive(config.archive));
  const record = await store.getTerminal(rolloutId);
  if (!record) return showOpen(config, store, rolloutId, output);
  const trajectory = record.trajectory ? await readTrajectory(record.trajectory, store.archive) : [];
  output.result({ record, trajectory }, () => textOf(record, trajectory));
  return 0;
}

async function showOpen(
  config: Config,
  store: TrajectoryStore,
  rolloutId: string,
  output: Output,
): Promise<number> {
  const client = await RolloutClient.connect(config);
  try {
    const open = await followed(client, store, rolloutId, output);
    if (open) {
      const { status, sequences } = open;
      output.result({ status, sequences }, () =>
        [JSON.stringify(status, null, 2), ...talkOf(sequences)].join('\n\n'),
      );
    } else {
      const record = await client.result(rolloutId);
      output.result({ record, trajectory: [] }, () => textOf(record, []));
    }
    return 0;
  } catch (error) {
    throw new RolloutError('InvalidRequest', `rollout ${rolloutId}: ${messageOf(error)}`, { cause: error });
  } finally {
    await client.close();
  }
}

/** Where it is and what it has said; that alone which Temporal knows while its host is away. Undefined once it has ended. */
async function followed(
  client: RolloutClient,
  store: TrajectoryStore,
  rolloutId: string,
  output: Output,
): Promise<{ status: RolloutStatus; sequences: RecordedSequence[] } | undefined> {
  try {
    const open = await new Following(client, store).read(rolloutId);
    return open && { status: open.status, sequences: open.sequences() };
  } catch (error) {
    if (!(error instanceof RolloutError) || error.type !== 'HostUnreachable') throw error;
    output.note(error.message);
    return { status: await client.status(rolloutId), sequences: [] };
  }
}

function textOf(record: RolloutResult, trajectory: readonly Trajectory[]): string {
  const head = tableOf(
    ['', ''],
    Object.entries({
      rollout: record.rolloutId,
      task: `${record.handler} ${record.taskId}, sample ${record.sample}`,
      outcome: record.outcome + (record.truncation ? ` (${record.truncation})` : ''),
      reward: record.reward ? JSON.stringify(record.reward) : '-',
      failure: record.failure ? `${record.failure.type}: ${record.failure.message}` : '-',
      cancelled: record.cancel ? JSON.stringify(record.cancel) : '-',
      host: `${record.host ?? '-'} (${record.backend ?? '-'}), attempt ${record.attempt}`,
      timings: JSON.stringify(record.timings),
      trajectory: record.trajectory?.uri ?? '-',
    }),
  );
  return [head, ...talkOf(trajectory)].join('\n\n');
}

function talkOf(sequences: readonly Pick<Trajectory, 'messages'>[]): string[] {
  return sequences.flatMap(({ messages }) =>
    messages.map(({ role, content }) => `── ${role} ──\n${content}`),
  );
}

/** `rollouts list`. */
export async function listCommand(
  config: Config,
  filter: RolloutFilter,
  limit: number,
  output: Output,
): Promise<number> {
  const client = await RolloutClient.connect(config);
  try {
    const listings: RolloutListing[] = [];
    for await (const listing of client.list(filter)) {
      if (listings.push(listing) >= limit) break;
    }
    output.result(listings, () => {
      if (listings.length === 0) return 'no rollout matches';
      return tableOf(
        ['rollout', 'stage', 'outcome', 'reward', 'host', 'started'],
        listings.map((listing) => [
          listing.rolloutId,
          listing.stage ?? '-',
          listing.outcome ?? listing.workflowState.toLowerCase(),
          listing.reward === null ? '-' : String(listing.reward),
          listing.host ?? '-',
          listing.startedAt,
        ]),
      );
    });
    return 0;
  } finally {
    await client.close();
  }
}

/** `rollouts config`: every value and where it comes from. */
export function configCommand(config: Config, output: Output): number {
  const entries = valueNames().map((name) => ({
    name,
    value: valueAt(config, name) ?? null,
    origin: config.origins[name] ?? 'default',
  }));
  output.result(entries, () =>
    tableOf(
      ['value', '', 'from'],
      entries.map(({ name, value, origin }) => [name, JSON.stringify(value), origin]),
    ),
  );
  return 0;
}
