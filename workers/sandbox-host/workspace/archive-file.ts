import { createHash, randomUUID } from 'node:crypto';
import { type FileHandle, open, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { syncFolder } from '../../../activities/trajectory/sync-folder.ts';
import { messageOf, RolloutError } from '../../../contracts/failures.ts';

/** A file as it is. */
export interface Content {
  readonly bytes: number;
  readonly sha256: string;
}

/**
 * Has `write` fill a file, which appears whole and on disk, or not at all if `write` throws or says why not. What is
 * written meanwhile has another name, which `note` (a file) says as long as there may be such a file.
 * @throws RolloutError StoreFailed
 */
export async function writeWhole(
  file: string,
  note: string,
  write: (fd: number) => Promise<string | null>,
): Promise<Content | { readonly why: string }> {
  const draft = `${file}.${randomUUID()}.draft`;
  return failing(`cannot write ${file}`, async () => {
    await writeFile(note, draft, { mode: 0o600 });
    const handle = await open(draft, 'wx+', 0o600);
    try {
      const why = await write(handle.fd);
      if (why !== null) return { why };
      const content = await contentOf(handle);
      await handle.sync();
      await rename(draft, file);
      await syncFolder(path.dirname(file));
      return content;
    } finally {
      await handle.close();
      await rm(draft, { force: true });
      await rm(note, { force: true });
    }
  });
}

/**
 * Has `read` take a file, once it is known to be what `sha256` says. Returns its size.
 * @throws RolloutError StoreFailed, StoreCorrupt
 */
export async function readChecked(
  file: string,
  sha256: string,
  read: (fd: number) => Promise<void>,
): Promise<number> {
  return failing(`cannot read ${file}`, async () => {
    const handle = await open(file, 'r');
    try {
      const content = await contentOf(handle);
      if (content.sha256 !== sha256) {
        throw new RolloutError('StoreCorrupt', `${file} does not match its checksum`);
      }
      await read(handle.fd);
      return content.bytes;
    } finally {
      await handle.close();
    }
  });
}

/** By offsets: where the file is read from next stays as it is. */
async function contentOf(handle: FileHandle): Promise<Content> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of handle.createReadStream({
    start: 0,
    autoClose: false,
    highWaterMark: 256 * 1024,
  })) {
    hash.update(chunk as Buffer);
    bytes += (chunk as Buffer).length;
  }
  return { bytes, sha256: hash.digest('hex') };
}

async function failing<T>(what: string, task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (error instanceof RolloutError || code === undefined) throw error;
    throw new RolloutError('StoreFailed', `${what}: ${messageOf(error)}`, { cause: error });
  }
}
