import { setTimeout as delay } from 'node:timers/promises';

/** Milliseconds for what takes seconds on a machine of metal. */
const MOST_MS = 1_800_000;

/** Asks every second until it is so. @throws Error with `what` was waited for */
export async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + MOST_MS;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`);
    await delay(1000);
  }
}
