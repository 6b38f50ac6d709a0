import { open } from 'node:fs/promises';

/** Makes the entries of a folder, new and renamed ones, survive a crash. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
