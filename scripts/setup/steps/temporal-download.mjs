import { rename } from 'node:fs/promises';
import path from 'node:path';
import { run } from '../lib/command.mjs';
import { download, downloadText } from '../lib/download.mjs';
import { SetupFailure } from '../lib/failure.mjs';
import { withFolderBeside } from '../lib/temporary.mjs';
import { TEMPORAL_CLI } from '../versions.mjs';

/** The project's releases: `<base>/v<version>/` holds the archives and, beside them, checksums.txt. */
const RELEASES = 'https://github.com/temporalio/cli/releases/download';

const PLATFORMS = { linux: 'linux', darwin: 'darwin' };
const ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' };

/**
 * Downloads the official release for this platform, verifies it against the release's own list of SHA-256
 * sums and puts the program at `target`. The list comes over TLS from the same release: it finds damage
 * and mix-ups, and is as trustworthy as the host.
 * @throws {SetupFailure} naming the address and what was wrong with its answer
 */
export async function downloadTemporal({ env, platform, arch, downloadLimits }, report, target) {
  const os = PLATFORMS[platform];
  const cpu = ARCHITECTURES[arch];
  if (!os || !cpu) throw new SetupFailure(`there is no release for ${platform} on ${arch}`);

  const base = (env.ROLLOUTS_TEMPORAL_DOWNLOAD || RELEASES).replace(/\/+$/, '');
  const name = `temporal_cli_${TEMPORAL_CLI}_${os}_${cpu}.tar.gz`;
  const release = `${base}/v${TEMPORAL_CLI}`;
  report.say(`downloading ${release}/${name}`);
  const expected = findSum(await downloadText(`${release}/checksums.txt`, downloadLimits), name, release);

  await withFolderBeside(target, async (folder) => {
    const archive = path.join(folder, name);
    const sum = await download(`${release}/${name}`, archive, {
      ...downloadLimits,
      onProgress: (text) => report.progress(`downloading, ${text}`),
    });
    if (sum !== expected) {
      throw new SetupFailure(`${release}/${name}: refused, its SHA-256 is ${sum} and not ${expected}`);
    }
    await run('tar', ['-xzf', archive, '-C', folder, 'temporal']);
    await rename(path.join(folder, 'temporal'), target);
  });
  return target;
}

/** Lines of the list are: sum, two spaces, file name. */
function findSum(list, name, release) {
  for (const line of list.split('\n')) {
    const [sum, file] = line.trim().split(/\s+\*?/);
    if (file === name && /^[0-9a-f]{64}$/.test(sum)) return sum;
  }
  throw new SetupFailure(`${release}/checksums.txt has no SHA-256 for ${name}`);
}
