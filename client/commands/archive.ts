import { openArchive } from '../../activities/trajectory/archive.ts';
import { type MovedOld, moveOld } from '../../activities/trajectory/move-old.ts';
import { TrajectoryStore } from '../../activities/trajectory/store.ts';
import type { Config } from '../../config/load.ts';
import { RolloutError } from '../../contracts/failures.ts';
import { visibilityQuery } from '../../contracts/filter.ts';
import type { Output } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';

const DAY_MS = 86_400_000;

/** Options of `rollouts archive`. */
export interface ArchiveOptions {
  /** Days; `archive.afterDays` if absent. */
  readonly olderThan?: number;
  readonly dryRun: boolean;
}

/**
 * `rollouts archive`: moves the files of rollouts that ended long ago from the store to the archive.
 * @returns 0 unless some could not be moved
 */
export async function archiveCommand(
  config: Config,
  { olderThan = config.archive.afterDays, dryRun }: ArchiveOptions,
  output: Output,
): Promise<number> {
  const archive = openArchive(config.archive);
  if (!archive) {
    throw new RolloutError(
      'InvalidRequest',
      'archive.to is not set: a folder or s3://bucket/prefix, in rollouts.toml',
    );
  }
  const store = new TrajectoryStore(config.derived.storeFolder);
  const moved = await moveOld(store, archive, {
    before: Date.now() - olderThan * DAY_MS,
    open: await openRollouts(config),
    dryRun,
  });
  output.result({ archive: archive.place, dryRun, ...moved }, () => textOf(moved, archive.place, dryRun));
  return moved.problems.length === 0 ? 0 : 1;
}

async function openRollouts(config: Config): Promise<Set<string>> {
  const client = await RolloutClient.connect(config);
  try {
    const open = new Set<string>();
    const query = `${visibilityQuery({})} AND ExecutionStatus = 'Running'`;
    for await (const { workflowId } of client.temporal.workflow.list({ query })) open.add(workflowId);
    return open;
  } finally {
    await client.close();
  }
}

function textOf({ rollouts, files, bytes, problems }: MovedOld, place: string, dryRun: boolean): string {
  const megabytes = (bytes / 1e6).toFixed(1);
  return [
    ...problems.map(({ rollout, problem }) => `${rollout}: ${problem}`),
    `${rollouts} rollouts, ${files} files, ${megabytes} MB ${dryRun ? 'would be moved' : 'moved'} to ${place}` +
      (problems.length > 0 ? `; ${problems.length} left where they are` : ''),
  ].join('\n');
}
