import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { type Readable, Transform } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { TrajectoryRef } from '../../contracts/trajectory.ts';
import { type Archive, nameInArchive } from './archive.ts';

/** A file that is read twice. */
interface Source {
  /** From its beginning; it stays open. */
  first(): Readable;
  /** Again; it is closed at the end of that. */
  last(): Readable;
  close(): Promise<void>;
}

/**
 * The bytes of a trajectory, read as they are taken, so that a long one takes no memory. It is read once before, to
 * be checked: what has begun to be sent can no longer be refused. To be read to its end or destroyed.
 * @throws RolloutError StoreFailed, StoreCorrupt as `readTrajectory`
 */
export async function streamTrajectory(ref: TrajectoryRef, archive?: Archive): Promise<Readable> {
  const source = await sourceOf(ref, archive);
  try {
    const digest = createHash('sha256');
    for await (const part of source.first()) digest.update(part);
    if (digest.digest('hex') !== ref.sha256) {
      throw new RolloutError('StoreCorrupt', `${ref.uri} does not match its checksum`);
    }
  } catch (error) {
    await source.close();
    if (error instanceof RolloutError) throw error;
    throw new RolloutError('StoreFailed', `cannot read ${ref.uri}: ${messageOf(error)}`, { cause: error });
  }
  return source.last();
}

/** Lines of JSON, each ended, as one JSON array of as many bytes and one more. */
export function asArray(lines: Readable): Readable {
  let held = '['.charCodeAt(0);
  const [newline, comma, end] = ['\n', ',', ']'].map((text) => text.charCodeAt(0)) as [
    number,
    number,
    number,
  ];
  const array = new Transform({
    transform(part: Buffer, _encoding, done) {
      // One byte behind, since the last of all is another.
      const out = Buffer.concat([Buffer.of(held), part.subarray(0, -1)]);
      held = part.at(-1) as number;
      for (let at = out.indexOf(newline); at !== -1; at = out.indexOf(newline, at)) out[at] = comma;
      done(null, out);
    },
    flush(done) {
      done(null, Buffer.of(end));
    },
  });
  lines.once('error', (error) => array.destroy(error));
  array.once('close', () => lines.destroy());
  return lines.pipe(array);
}

async function sourceOf(ref: TrajectoryRef, archive: Archive | undefined): Promise<Source> {
  const file = fileURLToPath(ref.uri);
  let handle: FileHandle;
  try {
    handle = await open(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') {
      throw new RolloutError('StoreFailed', `cannot read ${ref.uri}: ${messageOf(error)}`, { cause: error });
    }
    const read = await archive?.open(nameInArchive(file));
    if (read) return { first: read, last: read, close: async () => {} };
    const place = archive ? ` or in ${archive.place}` : '';
    throw new RolloutError('StoreFailed', `cannot read ${ref.uri}: no such file there${place}`);
  }
  return {
    first: () => handle.createReadStream({ start: 0, autoClose: false }),
    last: () => handle.createReadStream({ start: 0 }),
    close: () => handle.close(),
  };
}
