import { mkdir, open, readFile, rm, stat, utimes } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { remove, removeAtExit } from './temporary.mjs';

const POLL_MS = 250;
const REFRESH_MS = 2_000;
/** A lock of another machine (shared home folder) that was not refreshed for this long has no owner. */
const ABANDONED_MS = 60_000;

/**
 * Runs `work` while no other set-up, in any process, holds the same lock. A lock whose owner died is taken
 * over.
 * @template T
 * @param {string} file
 * @param {() => Promise<T>} work
 * @param {{ onWait?: (owner: string) => void }} [options]
 * @returns {Promise<T>}
 */
export async function withLock(file, work, { onWait = () => {} } = {}) {
  await mkdir(path.dirname(file), { recursive: true });
  await acquire(file, onWait);
  removeAtExit(file);
  const refresh = setInterval(() => {
    const now = new Date();
    // The lock may be gone when someone cleared the cache folder: nothing to refresh then.
    utimes(file, now, now).catch(() => {});
  }, REFRESH_MS);
  refresh.unref();
  try {
    return await work();
  } finally {
    clearInterval(refresh);
    await remove(file);
  }
}

async function acquire(file, onWait) {
  const seen = { mtimeMs: -1, since: 0 };
  let told = false;
  while (!(await create(file))) {
    const owner = await readOwner(file);
    if (owner === undefined) continue;
    if (isDead(owner) || (await isAbandoned(file, seen))) {
      await takeAway(file, owner);
      continue;
    }
    if (!told) {
      told = true;
      onWait(`process ${owner.pid} on ${owner.host}`);
    }
    await sleep(POLL_MS);
  }
}

async function create(file) {
  try {
    const handle = await open(file, 'wx');
    await handle.writeFile(JSON.stringify({ pid: process.pid, host: os.hostname() }));
    await handle.close();
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
}

/** The lock's owner; undefined when the lock has just been released. */
async function readOwner(file) {
  try {
    const text = await readFile(file, 'utf8');
    // Empty for the moment between its creation and its writing.
    return text === '' ? { pid: 0, host: 'unknown' } : JSON.parse(text);
  } catch (error) {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  }
}

function isDead({ pid, host }) {
  if (host !== os.hostname()) return false;
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH';
  }
}

/** Judged by our own clock alone, since a file server's may differ. */
async function isAbandoned(file, seen) {
  const mtimeMs = await stat(file).then(
    (info) => info.mtimeMs,
    () => -1,
  );
  if (mtimeMs !== seen.mtimeMs) {
    seen.mtimeMs = mtimeMs;
    seen.since = performance.now();
    return false;
  }
  return performance.now() - seen.since > ABANDONED_MS;
}

/**
 * Removes a dead owner's lock. Under a second, very short lock, because between our look and the removal
 * another waiter may already have removed the old lock and created its own.
 */
async function takeAway(file, expected) {
  const guard = `${file}.takeover`;
  if (!(await create(guard))) {
    const age = await stat(guard).then(
      (info) => Date.now() - info.mtimeMs,
      () => 0,
    );
    if (age > ABANDONED_MS) await rm(guard, { force: true });
    await sleep(POLL_MS);
    return;
  }
  try {
    const owner = await readOwner(file);
    if (owner?.pid === expected.pid && owner.host === expected.host) await rm(file, { force: true });
  } finally {
    await rm(guard, { force: true });
  }
}
