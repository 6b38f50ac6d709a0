import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { createGunzip, gunzip, gzip } from 'node:zlib';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { S3Objects } from './s3-objects.ts';
import { writeWhole } from './whole-files.ts';

/** Where an archive lies. */
export interface ArchivePlace {
  /** A folder, or `s3://bucket/prefix`. */
  readonly to?: string | undefined;
  /** Address of an S3-compatible store; Amazon's if absent. */
  readonly endpoint?: string | undefined;
  /** Region of the bucket; as the SDK's own configuration says if absent. */
  readonly region?: string | undefined;
}

/** Things by name, each there whole or not at all. */
export interface Objects {
  /** For messages. */
  readonly place: string;
  /** @throws RolloutError StoreFailed */
  put(name: string, bytes: Uint8Array): Promise<void>;
  /** Undefined if there is none of that name. @throws RolloutError StoreFailed */
  get(name: string): Promise<Uint8Array | undefined>;
}

/** Files of a store that are kept elsewhere: each compressed by gzip, under its name in the store with `.gz` after it. */
export class Archive {
  private readonly objects: Objects;

  constructor(objects: Objects) {
    this.objects = objects;
  }

  get place(): string {
    return this.objects.place;
  }

  /** Keeps a file, and reads it back. @throws RolloutError StoreFailed, StoreCorrupt if it comes back as another */
  async put(name: string, content: Uint8Array): Promise<void> {
    const standing = await this.get(name).catch((error: unknown) => {
      if (error instanceof RolloutError && error.type === 'StoreCorrupt') return undefined; // to be replaced
      throw error;
    });
    if (standing && Buffer.compare(standing, content) === 0) return;
    await this.objects.put(`${name}.gz`, await promisify(gzip)(content));
    const kept = await this.get(name);
    if (kept && Buffer.compare(kept, content) === 0) return;
    throw new RolloutError('StoreCorrupt', `${this.place}/${name}.gz is not what was put there`);
  }

  /** A file as it was put, or undefined. @throws RolloutError StoreFailed, StoreCorrupt */
  async get(name: string): Promise<Buffer | undefined> {
    const packed = await this.objects.get(`${name}.gz`);
    try {
      return packed && (await promisify(gunzip)(packed));
    } catch (error) {
      throw new RolloutError('StoreCorrupt', `${this.place}/${name}.gz: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  /** A file, unpacked as it is read, as often as it is wanted; undefined if there is none. @throws RolloutError StoreFailed */
  async open(name: string): Promise<(() => Readable) | undefined> {
    const packed = await this.objects.get(`${name}.gz`);
    if (!packed) return undefined;
    return () => {
      const unpacked = createGunzip();
      unpacked.end(packed);
      return unpacked;
    };
  }
}

/** Name of a store's file in its archive: its last folders, wherever the store was when a reference named it. */
export function nameInArchive(file: string): string {
  return file.split(path.sep).slice(-3).join('/');
}

/** Undefined if no place is set. @throws RolloutError InvalidRequest if it is none */
export function openArchive({ to, endpoint, region }: ArchivePlace): Archive | undefined {
  if (to === undefined) return undefined;
  return new Archive(to.startsWith('s3://') ? S3Objects.at(to, { endpoint, region }) : new Folder(to));
}

/** Objects as files. */
export class Folder implements Objects {
  readonly place: string;

  constructor(folder: string) {
    this.place = path.resolve(folder);
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    await writeWhole(path.join(this.place, name), bytes);
  }

  async get(name: string): Promise<Uint8Array | undefined> {
    const file = path.join(this.place, name);
    try {
      return await readFile(file);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw new RolloutError('StoreFailed', `cannot read ${file}: ${messageOf(error)}`, { cause: error });
    }
  }
}
