import { createHash, randomUUID } from 'node:crypto';
import { link, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import { syncFolder } from './sync-folder.ts';

/** One of 256 folders for an id: network file systems grow slow with many thousand entries in one. */
export function spreadFolder(id: string): string {
  return createHash('sha256').update(id).digest('hex').slice(0, 2);
}

/** The text of a file, or undefined if there is none. @throws RolloutError StoreFailed */
export async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new RolloutError('StoreFailed', `cannot read ${file}: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Writes a file that is there whole or not at all; with `exclusive`, only where none is.
 * @returns false if one was there. @throws RolloutError StoreFailed
 */
export async function writeWhole(
  file: string,
  content: string | Uint8Array,
  options: { exclusive?: boolean } = {},
): Promise<boolean> {
  const draft = `${file}.${randomUUID()}.draft`;
  try {
    await mkdir(path.dirname(file), { recursive: true });
    const handle = await open(draft, 'wx', 0o600);
    try {
      await handle.writeFile(content);
      await handle.sync();
    } finally {
      await handle.close();
    }
    if (options.exclusive) {
      await link(draft, file); // fails where the name is taken, on network file systems too
    } else {
      await rename(draft, file);
    }
    await syncFolder(path.dirname(file));
    return true;
  } catch (error) {
    if (options.exclusive && (error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw new RolloutError('StoreFailed', `cannot write ${file}: ${messageOf(error)}`, { cause: error });
  } finally {
    // Where this fails, so did the write, which has said why; a draft left over is never read.
    await rm(draft, { force: true }).catch(() => {});
  }
}
