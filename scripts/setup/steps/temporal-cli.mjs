import path from 'node:path';
import { explain, SetupFailure } from '../lib/failure.mjs';
import { findOnPath, isExecutable } from '../lib/files.mjs';
import { withLock } from '../lib/lock.mjs';
import { TEMPORAL_CLI, TEMPORAL_CLI_MINIMUM } from '../versions.mjs';
import { buildTemporal } from './temporal-build.mjs';
import { downloadTemporal } from './temporal-download.mjs';
import { checkVersion } from './temporal-version.mjs';

/**
 * Brings the Temporal CLI. Value: its absolute path. Sources, the first good one wins: the variable
 * TEMPORAL_CLI, PATH, the cache folder, the official release for this platform, a build by `go install`.
 */
export const temporalCli = {
  title: 'Temporal CLI',
  async run(context, report) {
    const { env, cache } = context;
    const cached = path.join(cache, 'temporal-cli', TEMPORAL_CLI, 'temporal');
    const attempts = [];

    /** One source; undefined when it has none that serves, which is then among the attempts. */
    async function attempt(what, bring) {
      try {
        const file = await bring();
        return { value: file, summary: `${await checkVersion(file)}, ${what}: ${file}` };
      } catch (error) {
        attempts.push({ what, error: explain(error) });
        report.warn(`${what}: ${explain(error).split('\n', 1)[0]}; going on`);
        return undefined;
      }
    }
    const take = (what, file) => attempt(what, async () => requireExecutable(file));

    if (env.TEMPORAL_CLI) {
      const found = await take(`TEMPORAL_CLI=${env.TEMPORAL_CLI}`, path.resolve(env.TEMPORAL_CLI));
      if (found) return found;
    }
    const onPath = findOnPath('temporal', env.PATH);
    if (onPath.length === 0) attempts.push({ what: 'PATH', error: 'no temporal on it' });
    for (const file of onPath) {
      const found = await take('on PATH', file);
      if (found) return found;
    }
    if (isExecutable(cached)) {
      const found = await take('in the cache folder', cached);
      if (found) return found;
    } else {
      attempts.push({ what: `cache folder ${cache}`, error: 'not there yet' });
    }

    return withLock(
      `${cached}.lock`,
      async () => {
        // Another set-up may have brought it while this one waited for the lock.
        const waited = isExecutable(cached) && (await take('in the cache folder', cached));
        if (waited) return waited;
        const found =
          (await attempt('official release', () => downloadTemporal(context, report, cached))) ??
          (await attempt('go install', () => buildTemporal(context, report, cached)));
        if (found) return found;
        throw new SetupFailure(`no Temporal CLI (version ${TEMPORAL_CLI_MINIMUM} or newer) to be had`, {
          attempts,
          advice: [
            'install it (macOS: brew install temporal; else https://docs.temporal.io/cli) so that it is on PATH',
            'or name one: TEMPORAL_CLI=/path/to/temporal',
            'or install Go 1.25 or newer, from which it is built here',
            'behind a mirror? ROLLOUTS_TEMPORAL_DOWNLOAD is the address that stands in for ' +
              'https://github.com/temporalio/cli/releases/download',
          ],
        });
      },
      { onWait: (owner) => report.say(`waiting for ${owner}, which brings it too`) },
    );
  },
};

function requireExecutable(file) {
  if (!isExecutable(file)) throw new SetupFailure(`${file} is no program that can be run`);
  return file;
}
