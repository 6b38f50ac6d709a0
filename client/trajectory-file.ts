import type { FileHandle } from 'node:fs/promises';
import type { Archive } from '../activities/trajectory/archive.ts';
import { readTrajectory } from '../activities/trajectory/store.ts';
import { messageOf, RolloutError } from '../contracts/failures.ts';
import type { TrajectoryRef } from '../contracts/trajectory.ts';
import { openOut } from './written-file.ts';

/** The file of trajectories that a batch writes, one line per sequence, in the order of ending. */
export class TrajectoryFile {
  private readonly file: FileHandle;
  private readonly name: string;
  private readonly archive: Archive | undefined;
  private last: Promise<void> = Promise.resolve();

  private constructor(name: string, file: FileHandle, archive: Archive | undefined) {
    this.name = name;
    this.archive = archive;
    this.file = file;
  }

  /** `archive`: where what the store has no longer is read. @throws RolloutError InvalidRequest ({@link openOut}) */
  static async create(name: string, inputs: readonly string[], archive?: Archive): Promise<TrajectoryFile> {
    return new TrajectoryFile(name, await openOut(name, inputs), archive);
  }

  /** @throws RolloutError StoreFailed if the file takes no more. */
  async add(trajectory: TrajectoryRef | null): Promise<void> {
    if (!trajectory) return;
    const sequences = await readTrajectory(trajectory, this.archive);
    const text = sequences.map((sequence) => `${JSON.stringify(sequence)}\n`).join('');
    // One after the other: results come from many rollouts at once.
    this.last = this.last.then(() => this.file.appendFile(text));
    try {
      await this.last;
    } catch (error) {
      throw new RolloutError('StoreFailed', `--out ${this.name}: ${messageOf(error)}`, { cause: error });
    }
  }

  async close(): Promise<void> {
    await this.file.close();
  }
}
