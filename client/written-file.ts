import { type FileHandle, open, stat } from 'node:fs/promises';
import { messageOf, RolloutError } from '../contracts/failures.ts';

/**
 * Opens the file of `--out`, empty. `inputs`: what the command reads, of which nothing would be left.
 * @throws RolloutError InvalidRequest if it cannot be opened, is one of the inputs, or one of those is not there
 */
export async function openOut(name: string, inputs: readonly string[]): Promise<FileHandle> {
  const standing = await stat(name).catch(() => undefined); // there is none yet, or opening it says why not
  for (const input of inputs) {
    const read = await stat(input).catch((error: unknown) => {
      throw new RolloutError('InvalidRequest', messageOf(error), { cause: error });
    });
    if (standing?.dev !== read.dev || standing.ino !== read.ino) continue;
    throw new RolloutError('InvalidRequest', `--out ${name}: is a file that is read; name another`);
  }
  try {
    return await open(name, 'w');
  } catch (error) {
    throw new RolloutError('InvalidRequest', `--out ${name}: ${messageOf(error)}`, { cause: error });
  }
}
