import os from 'node:os';
import path from 'node:path';
import { PROJECT_ROOT } from '../../config/tools.ts';
import { run } from '../setup/lib/command.mjs';

const VERSION = '1.32.2';
const INSTALL = path.join(PROJECT_ROOT, 'temporal-config', 'production', 'install.sh');

/** Where the set-up keeps what it brings. */
export function cacheFolder(): string {
  const { env } = process;
  return env.ROLLOUTS_CACHE ?? path.join(env.XDG_CACHE_HOME ?? `${os.homedir()}/.cache`, 'durable-rollouts');
}

/** Folder below `cache` of the production server's programs; building them takes minutes and Go, once. */
export async function bringTemporalServer(cache = cacheFolder()): Promise<string> {
  const folder = path.join(cache, `temporal-server-${VERSION}`);
  console.log(`Temporal server ${VERSION} in ${folder}`);
  await run(INSTALL, [folder], { env: process.env, timeoutMs: 3_600_000 });
  return folder;
}
