import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';

/** A part of an OCI image: where it lies, and the SHA-256 of what it holds; null: it is no ordinary file. */
type Blob = readonly [name: string, sha256: string | null];

/** Bytes of what tar says of an archive. */
const MAX_LISTING_BYTES = 64 * 1024 ** 2;
/** For `sh`: the checksum of one member, and its name. */
const CHECKSUM = `printf '%s %s\\n' "$(sha256sum | cut -c1-64)" "$TAR_FILENAME"`;

/**
 * Checks that each part of an OCI image (a folder, or an archive of one) is what its name says. Apptainer takes any
 * content for that of the digest that names it, and keeps it for all images that have a part of this digest.
 * @throws RolloutError InvalidRequest naming the part that is not
 */
export async function checkBlobs(kind: 'oci-archive' | 'oci-layout', file: string): Promise<void> {
  let blobs: Blob[];
  try {
    blobs = await (kind === 'oci-layout' ? blobsOfFolder(file) : blobsOfArchive(file));
  } catch (error) {
    throw new RolloutError('InvalidRequest', `${file}: ${messageOf(error)}`, { cause: error });
  }
  const wrong = blobs.find(([name, sha256]) => name !== `blobs/sha256/${sha256}`);
  if (!wrong) return;
  const [name, sha256] = wrong;
  const what = sha256 === null ? 'is no ordinary file' : `has the SHA-256 ${sha256}`;
  throw new RolloutError('InvalidRequest', `${file}: ${name} ${what}, so it is not what it is taken for`);
}

async function blobsOfFolder(layout: string): Promise<Blob[]> {
  const found: Blob[] = [];
  const folder = path.join(layout, 'blobs');
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isDirectory()) continue;
    const file = path.join(entry.parentPath, entry.name);
    const hash = createHash('sha256');
    if (entry.isFile()) await pipeline(createReadStream(file), hash);
    found.push([path.relative(layout, file), entry.isFile() ? hash.digest('hex') : null]);
  }
  return found;
}

async function blobsOfArchive(archive: string): Promise<Blob[]> {
  const tar = async (...args: string[]): Promise<string[]> => {
    const { stdout } = await promisify(execFile)('tar', [...args, archive], { maxBuffer: MAX_LISTING_BYTES });
    return stdout.split('\n').filter((line) => line !== '');
  };
  const isBlob = ([name]: Blob): boolean => name.startsWith('blobs/');
  // Links and the like, as `ls -l` has them.
  const others = (await tar('--numeric-owner', '-tvf'))
    .filter((line) => !/^[-d]/.test(line))
    .map((line): Blob => [withoutDot(line.split(/ +/).slice(5).join(' ')), null]);
  const files = (await tar('-x', '--to-command', CHECKSUM, '-f')).map((line): Blob => {
    return [withoutDot(line.slice(65)), line.slice(0, 64)];
  });
  return [...others, ...files].filter(isBlob);
}

function withoutDot(name: string): string {
  return name.replace(/^(\.\/)+/, '');
}
