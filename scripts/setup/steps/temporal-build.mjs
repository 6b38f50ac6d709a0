import { rename } from 'node:fs/promises';
import path from 'node:path';
import { run } from '../lib/command.mjs';
import { SetupFailure } from '../lib/failure.mjs';
import { findOnPath } from '../lib/files.mjs';
import { withFolderBeside } from '../lib/temporary.mjs';
import { TEMPORAL_CLI } from '../versions.mjs';

const MODULE = 'github.com/temporalio/cli';

const FLAGS = [
  // As the release is linked: a named version, no debugging symbols.
  ...['-ldflags', `-s -w -X ${MODULE}/temporalcli.Version=${TEMPORAL_CLI}`],
  // So the compiler need not make them either.
  '-gcflags=all=-dwarf=false',
  // Leaves out a direct path to Google's storage that only an archiving server inside Google's cloud uses,
  // and the hundred packages behind it.
  ...['-tags', 'disable_grpc_modules'],
];

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
    await run(go, ['install', '-v', ...FLAGS, `${MODULE}/cmd/temporal@v${TEMPORAL_CLI}`], {
      // The release is built without C too. The compiler's own garbage collector costs a tenth of the time.
      env: { CGO_ENABLED: '0', GOGC: '400', ...env, GOBIN: folder },
      onLine(line) {
        if (line.startsWith('go: downloading')) report.progress(`${++modules} modules downloaded`);
        else report.progress(`${++packages} packages compiled, now ${line.slice(0, 60)}`);
      },
    });
    await rename(path.join(folder, 'temporal'), target);
  });
  return target;
}
