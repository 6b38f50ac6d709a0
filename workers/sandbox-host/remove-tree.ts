import { runQuietly } from './backends/wait.ts';

/** Folders in one call of rm: far fewer than an argument list may have. */
const MOST_AT_ONCE = 200;

/** Folders that wait for the rm that is running to end, and who waits for each. */
const waiting = new Map<string, { resolve: () => void; reject: (error: unknown) => void }[]>();
let busy = false;

/**
 * Removes a folder that nothing runs in, whatever modes its folders were given and however deep they are: rm and
 * chmod go by file descriptors, follow no link and keep no path. What is asked for while one rm runs shares the
 * next: a process for each of hundreds of sandboxes that end at once would hold everybody else up.
 * @throws Error with what rm says
 */
export function removeTree(folder: string): Promise<void> {
  return new Promise((resolve, reject) => {
    waiting.set(folder, [...(waiting.get(folder) ?? []), { resolve, reject }]);
    if (!busy) void work();
  });
}

async function work(): Promise<void> {
  busy = true;
  while (waiting.size > 0) {
    const batch = [...waiting].slice(0, MOST_AT_ONCE);
    for (const [folder] of batch) waiting.delete(folder);
    const { ok } = await rm(batch.map(([folder]) => folder));
    for (const [folder, callers] of batch) {
      try {
        if (!ok) await removeStubborn(folder);
        for (const { resolve } of callers) resolve();
      } catch (error) {
        for (const { reject } of callers) reject(error);
      }
    }
  }
  busy = false;
}

async function removeStubborn(folder: string): Promise<void> {
  await runQuietly('/bin/chmod', ['-R', 'u+rwx', '--', folder], {});
  const { ok, message } = await rm([folder]);
  if (!ok) throw new Error(message);
}

function rm(folders: readonly string[]) {
  return runQuietly('/bin/rm', ['-rf', '--one-file-system', '--', ...folders], {});
}
