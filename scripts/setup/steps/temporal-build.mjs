import { rename } from 'node:fs/promises';
import path from 'node:path';
import { run } from '../lib/command.mjs';
import { SetupFailure } from '../lib/failure.mjs';
import { findOnPath } from '../lib/files.mjs';
import { withFolderBeside } from '../lib/temporary.mjs';
import { TEMPORAL_CLI } from '../versions.mjs';

const MODULE = 'github.com/temporalio/cli';

/**
 * Builds the CLI from its Go module, whose sums Go itself verifies, and puts the program at `target`.
 * Minutes when Go's build cache is cold, seconds when it is warm.
 * @throws {SetupFailure} with the last lines that Go printed
 */
export async function buildTemporal({ env }, report, target) {
  const [go] = findOnPath('go', env.PATH);
  if (go === undefined) throw new SetupFailure('no go on PATH');

  let modules = 0;
  let packages = 0;
  report.say(`go install ${MODULE}/cmd/temporal@v${TEMPORAL_CLI} (takes minutes the first time)`);
  await withFolderBeside(target, async (folder) => {
    // The release's own flags: a named version, no debugging symbols.
    const flags = `-s -w -X ${MODULE}/temporalcli.Version=${TEMPORAL_CLI}`;
    const args = ['install', '-v', '-ldflags', flags, `${MODULE}/cmd/temporal@v${TEMPORAL_CLI}`];
    await run(go, args, {
      env: { ...env, GOBIN: folder },
      onLine(line) {
        if (line.startsWith('go: downloading')) report.progress(`${++modules} modules downloaded`);
        else report.progress(`${++packages} packages compiled, now ${line.slice(0, 60)}`);
      },
    });
    await rename(path.join(folder, 'temporal'), target);
  });
  return target;
}
