import { createHash } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { LedgerRecord } from '../../contracts/ledger.ts';
import { RolloutResult } from '../../contracts/result.ts';
import type { Shelf } from '../../contracts/stages.ts';
import { Trajectory, type TrajectoryRef } from '../../contracts/trajectory.ts';
import { type Archive, nameInArchive } from './archive.ts';
import { readIfThere, spreadFolder, writeWhole } from './whole-files.ts';

/** Names one attempt of one workflow run. */
export interface AttemptKey {
  readonly rolloutId: string;
  readonly workflowRunId: string;
  readonly attempt: number;
}

/** What an attempt that goes on has recorded. */
const SO_FAR = 'so-far.json';

/** What nobody reads once a rollout has ended: workspaces of its pauses, and what was followed. */
export const LEFT_BEHIND = /\.workspace\.tar(\.json)?$|\.so-far\.json$/;

/** Of each rollout that has ended. */
export const TERMINAL_FILE = 'terminal.json';

/**
 * Trajectories and terminal records in a folder that all workers share. Every file appears whole or not at
 * all; a terminal record, once there, is never replaced.
 *
 * `<folder>/<2 hex digits>/<rollout id>/terminal.json` and, per workflow run and attempt,
 * `<run id>-<attempt>.ledger.jsonl` and `….trajectory.jsonl`; in a pause also `….<entry>.workspace.tar` with `….json`, and of
 * one that somebody follows `….so-far.json`.
 * What is no longer there is read from the archive, where there is one.
 */
export class TrajectoryStore {
  readonly folder: string;
  readonly archive: Archive | undefined;

  constructor(folder: string, archive?: Archive) {
    this.folder = folder;
    this.archive = archive;
  }

  /** Keeps the records of one attempt's ledger. @throws RolloutError StoreFailed */
  async putLedger(key: AttemptKey, records: readonly LedgerRecord[]): Promise<void> {
    const text = records.map((record) => `${JSON.stringify(record)}\n`).join('');
    const digest = createHash('sha256').update(text).digest('hex');
    await writeWhole(this.attemptFile(key, 'ledger.jsonl'), `${JSON.stringify({ sha256: digest })}\n${text}`);
  }

  /**
   * The ledger of one attempt, or undefined if none was kept.
   * @throws RolloutError StoreFailed, StoreCorrupt
   */
  async getLedger(key: AttemptKey): Promise<LedgerRecord[] | undefined> {
    const file = this.attemptFile(key, 'ledger.jsonl');
    const text = (await readIfThere(file)) ?? (await archived(file, this.archive));
    if (text === undefined) return undefined;
    const headEnd = text.indexOf('\n');
    const body = text.slice(headEnd + 1);
    const digest = createHash('sha256').update(body).digest('hex');
    if (!text.startsWith(JSON.stringify({ sha256: digest }))) {
      throw new RolloutError('StoreCorrupt', `${file} does not match its checksum`);
    }
    return body
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as LedgerRecord);
  }

  /**
   * Keeps what an attempt that goes on has recorded, for whoever follows it; its ledger comes when it ends.
   * @throws RolloutError StoreFailed
   */
  async putSoFar(key: AttemptKey, records: readonly LedgerRecord[]): Promise<void> {
    const file = this.attemptFile(key, SO_FAR);
    // Records only come on: as many are the same ones.
    if ((await readIfThere(file))?.startsWith(`${records.length}\n`)) return;
    await writeWhole(file, `${records.length}\n${JSON.stringify(records)}`);
  }

  /** What was kept of an attempt that goes on; none if nothing was. @throws RolloutError StoreFailed */
  async getSoFar(key: AttemptKey): Promise<LedgerRecord[]> {
    const text = await readIfThere(this.attemptFile(key, SO_FAR));
    return text === undefined ? [] : (JSON.parse(text.slice(text.indexOf('\n'))) as LedgerRecord[]);
  }

  /**
   * Where the workspace of an attempt is kept while a pause takes its sandbox, and what is known of it there; one
   * place per entry into the run stage. @throws RolloutError StoreFailed
   */
  async shelf(key: AttemptKey, entry: number): Promise<{ file: string; kept: Shelf | undefined }> {
    const file = this.attemptFile(key, `${entry}.workspace.tar`);
    const note = await readIfThere(`${file}.json`);
    return { file, kept: note === undefined ? undefined : (JSON.parse(note) as Shelf) };
  }

  /** Says that a workspace is kept, as the ledger has been. @throws RolloutError StoreFailed */
  async putShelf(shelf: Shelf): Promise<void> {
    await writeWhole(`${shelf.file}.json`, JSON.stringify(shelf));
  }

  /** What a rollout that has ended leaves behind. @throws RolloutError StoreFailed */
  private async dropWorthless(rolloutId: string): Promise<void> {
    const folder = this.rolloutFolder(rolloutId);
    try {
      for (const name of await readdir(folder)) {
        if (LEFT_BEHIND.test(name)) await rm(path.join(folder, name), { force: true });
      }
    } catch (error) {
      throw new RolloutError('StoreFailed', `cannot clear ${folder}: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Writes the trajectory of one attempt, one line per sequence. @throws RolloutError StoreFailed */
  async putTrajectory(key: AttemptKey, sequences: readonly Trajectory[]): Promise<TrajectoryRef> {
    const text = sequences.map((sequence) => `${JSON.stringify(sequence)}\n`).join('');
    const file = this.attemptFile(key, 'trajectory.jsonl');
    await writeWhole(file, text);
    const sum = (count: (sequence: Trajectory) => number) =>
      sequences.reduce((total, sequence) => total + count(sequence), 0);
    return {
      uri: pathToFileURL(file).href,
      sha256: createHash('sha256').update(text).digest('hex'),
      bytes: Buffer.byteLength(text),
      turns: sum((sequence) => sequence.turns.length),
      promptTokens: sum((sequence) => sequence.input_ids.length),
      outputTokens: sum((sequence) => sequence.output_ids.length),
      sampledTokens: sum((sequence) => sequence.loss_mask.filter((mask) => mask === 1).length),
    };
  }

  /**
   * Keeps the terminal record of a rollout unless it has one.
   * @returns the record that stands: the given one, or the one that was there.
   * @throws RolloutError StoreFailed
   */
  async putTerminal(result: RolloutResult): Promise<RolloutResult> {
    const file = path.join(this.rolloutFolder(result.rolloutId), TERMINAL_FILE);
    const created = await writeWhole(file, `${JSON.stringify(result, null, 2)}\n`, { exclusive: true });
    await this.dropWorthless(result.rolloutId);
    if (created) return result;
    return (await this.getTerminal(result.rolloutId)) as RolloutResult;
  }

  /** The terminal record of a rollout, if it has one. @throws RolloutError StoreFailed, StoreCorrupt */
  async getTerminal(rolloutId: string): Promise<RolloutResult | undefined> {
    const file = path.join(this.rolloutFolder(rolloutId), TERMINAL_FILE);
    const text = await readIfThere(file);
    if (text === undefined) return undefined;
    const parsed = RolloutResult.safeParse(JSON.parse(text));
    if (!parsed.success) throw new RolloutError('StoreCorrupt', `${file}: ${parsed.error.message}`);
    return parsed.data;
  }

  private rolloutFolder(rolloutId: string): string {
    return path.join(this.folder, spreadFolder(rolloutId), rolloutId);
  }

  private attemptFile(key: AttemptKey, suffix: string): string {
    return path.join(this.rolloutFolder(key.rolloutId), `${key.workflowRunId}-${key.attempt}.${suffix}`);
  }
}

/**
 * Reads what a reference points at and checks it; from `archive` if the store has it no longer.
 * @throws RolloutError StoreFailed if it cannot be read, StoreCorrupt if it is not what the reference says.
 */
export async function readTrajectory(ref: TrajectoryRef, archive?: Archive): Promise<Trajectory[]> {
  const file = fileURLToPath(ref.uri);
  const text = (await readIfThere(file)) ?? (await archived(file, archive));
  if (text === undefined) {
    const place = archive ? ` or in ${archive.place}` : '';
    throw new RolloutError('StoreFailed', `cannot read ${ref.uri}: no such file there${place}`);
  }
  const digest = createHash('sha256').update(text).digest('hex');
  if (digest !== ref.sha256) throw new RolloutError('StoreCorrupt', `${ref.uri} does not match its checksum`);
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => Trajectory.parse(JSON.parse(line)));
}

async function archived(file: string, archive: Archive | undefined): Promise<string | undefined> {
  return (await archive?.get(nameInArchive(file)))?.toString('utf8');
}
