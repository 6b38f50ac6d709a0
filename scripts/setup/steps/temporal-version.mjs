import { createReadStream } from 'node:fs';
import { run } from '../lib/command.mjs';
import { SetupFailure } from '../lib/failure.mjs';
import { compareVersions, TEMPORAL_CLI_MINIMUM } from '../versions.mjs';

/** What a build by `go install` calls itself, whatever its version. */
const UNNAMED = '0.0.0-DEV';

/**
 * The version of a Temporal CLI.
 * @param {string} file
 * @returns {Promise<string>}
 * @throws {SetupFailure} when it can't be run, says no version, or is older than the minimum
 */
export async function checkVersion(file) {
  const { stdout } = await run(file, ['--version'], { timeoutMs: 15_000 });
  const said = /^temporal version v?(\S+)/m.exec(stdout)?.[1];
  if (said === undefined) throw new SetupFailure(`"--version" printed no Temporal version: ${stdout.trim()}`);
  const version = said === UNNAMED ? await moduleVersion(file) : said;
  if (version === undefined) {
    throw new SetupFailure(
      `a development build without a version; at least ${TEMPORAL_CLI_MINIMUM} is needed`,
    );
  }
  if (compareVersions(version, TEMPORAL_CLI_MINIMUM) < 0) {
    throw new SetupFailure(`version ${version} is too old; at least ${TEMPORAL_CLI_MINIMUM} is needed`);
  }
  return version;
}

/** Go writes the main module's version into every binary: `mod`, path, version, separated by tabs. */
async function moduleVersion(file) {
  const pattern = /mod\tgithub\.com\/temporalio\/cli\tv(\d+\.\d+\.\d+\S*)/;
  let carry = '';
  for await (const chunk of createReadStream(file, { encoding: 'latin1', highWaterMark: 4 << 20 })) {
    const text = carry + chunk;
    const found = pattern.exec(text);
    if (found && found.index + found[0].length < text.length) return found[1];
    carry = text.slice(-256);
  }
  return undefined;
}
