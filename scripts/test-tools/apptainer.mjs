import { chmodSync, existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { cp, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { run } from '../setup/lib/command.mjs';
import { SetupFailure } from '../setup/lib/failure.mjs';
import { findOnPath, hashOf, temporaryName } from '../setup/lib/files.mjs';
import { withLock } from '../setup/lib/lock.mjs';

/** Helpers from the system's own suite, by the program that tells whether they are there. */
const HELPERS = [
  { program: 'patchelf', name: 'patchelf' },
  { program: 'mksquashfs', name: 'squashfs-tools' },
  { program: 'squashfuse_ll', name: 'squashfuse' },
  { program: 'fuse-overlayfs', name: 'fuse-overlayfs' },
];
const SUITE = 'sid';
/** Packages of {@link SUITE}, unpacked and never installed. */
const PACKAGES = ['apptainer', 'libc6', 'libseccomp2', 'libsqlite3-0'];
/** Changes with the recipe below. */
const RECIPE = '1';

/**
 * Sets Apptainer up and returns the program's path. Idempotent. Only as root, who may change this machine.
 * @param {NodeJS.ProcessEnv} env
 */
export async function apptainer(env) {
  await installHelpers(env);
  if (!existsSync('/dev/fuse')) await run('mknod', ['/dev/fuse', 'c', '10', '229']);
  chmodSync('/dev/fuse', 0o666);
  const cache = reachableCache(env);
  const prefix = path.join(cache, 'apptainer', hashOf(RECIPE, ...PACKAGES).slice(0, 16));
  const program = path.join(prefix, 'usr', 'bin', 'apptainer');
  await withLock(`${prefix}.lock`, async () => {
    if (!existsSync(program)) await build(prefix);
  });
  await run(program, ['--version'], { timeoutMs: 20_000 });
  return program;
}

async function installHelpers(env) {
  const missing = HELPERS.filter(({ program }) => findOnPath(program, env.PATH).length === 0);
  if (missing.length === 0) return;
  const quiet = { env: { ...env, DEBIAN_FRONTEND: 'noninteractive' } };
  // Another installation may be under way.
  const apt = ['-q', '-o', 'DPkg::Lock::Timeout=600'];
  const install = [...apt, 'install', '-y', '--no-install-recommends', ...missing.map(({ name }) => name)];
  try {
    await run('apt-get', install, quiet);
  } catch {
    // The lists may be older than the mirror.
    await run('apt-get', [...apt, 'update'], quiet);
    await run('apt-get', install, quiet);
  }
}

/**
 * The cache folder, or one beside the system's: if other users could not reach it, since sandboxes run as another
 * user, or if it lies below /tmp, of which each sandbox has its own.
 */
function reachableCache(env) {
  const wanted = env.ROLLOUTS_CACHE
    ? path.resolve(env.ROLLOUTS_CACHE)
    : path.join(env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'durable-rollouts');
  if (wanted.startsWith('/tmp/')) return '/var/cache/durable-rollouts';
  for (let folder = wanted; folder !== path.dirname(folder); folder = path.dirname(folder)) {
    if (existsSync(folder) && (statSync(folder).mode & 0o005) !== 0o005) return '/var/cache/durable-rollouts';
  }
  return wanted;
}

/** Beside and renamed at the end, so that what is there is whole; the paths in the programs are the final ones. */
async function build(prefix) {
  const work = temporaryName(prefix);
  try {
    await mkdir(work, { recursive: true });
    const archives = await download(path.join(work, 'apt'));
    const tree = path.join(work, 'tree');
    for (const archive of archives) await run('dpkg-deb', ['-x', archive, tree]);
    await arrange(tree, prefix);
    await rm(prefix, { recursive: true, force: true });
    await rename(tree, prefix);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Downloads {@link PACKAGES} with an apt that has nothing of the system's but its keys and its mirror. */
async function download(folder) {
  const places = Object.fromEntries(
    ['etc/preferences.d', 'state/lists/partial', 'cache/archives/partial', 'archives'].map((name) => [
      name,
      path.join(folder, name),
    ]),
  );
  for (const place of Object.values(places)) await mkdir(place, { recursive: true });
  const sources = path.join(folder, 'etc', 'sources.list');
  const status = path.join(folder, 'status');
  await writeFile(status, '');
  await writeFile(sources, `deb [signed-by=${await keyring()}] ${await mirror()} ${SUITE} main\n`);
  const options = Object.entries({
    'Dir::Etc': path.join(folder, 'etc'),
    'Dir::Etc::SourceList': sources,
    'Dir::Etc::SourceParts': '/dev/null',
    'Dir::State': path.join(folder, 'state'),
    'Dir::State::status': status,
    'Dir::Cache': path.join(folder, 'cache'),
    'APT::Sandbox::User': 'root',
    'Acquire::Languages': 'none',
    'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled': 'false',
    'Acquire::Retries': '3',
  }).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  await run('apt-get', [...options, '-q', 'update'], { timeoutMs: 300_000 });
  await run('apt-get', [...options, '-q', 'download', ...PACKAGES], {
    cwd: places.archives,
    timeoutMs: 300_000,
  });
  return readdirSync(places.archives)
    .filter((name) => name.endsWith('.deb'))
    .map((name) => path.join(places.archives, name));
}

/** The mirror from which this system has its main packages. */
async function mirror() {
  const { stdout } = await run('apt-get', [
    'indextargets',
    '--format',
    '$(REPO_URI) $(COMPONENT)',
    'Created-By: Packages',
  ]);
  const found = stdout
    .split('\n')
    .map((line) => line.split(' '))
    .find(([uri, component]) => component === 'main' && /\/debian\/?$/.test(uri ?? ''));
  if (found?.[0]) return found[0];
  throw new SetupFailure('this system has no Debian mirror in its apt sources', {
    advice: ['install apptainer or singularity by other means and put it on PATH'],
  });
}

async function keyring() {
  const file = '/usr/share/keyrings/debian-archive-keyring.gpg';
  if (existsSync(file)) return file;
  throw new SetupFailure(`${file} is missing`, { advice: ['apt install debian-archive-keyring'] });
}

/** Makes an unpacked tree work from `prefix`: it looks for its own folders below usr, and needs its own libc. */
async function arrange(tree, prefix) {
  const usr = path.join(tree, 'usr');
  for (const name of ['etc', 'var']) {
    await cp(path.join(tree, name), path.join(usr, name), { recursive: true });
    await symlink(path.join('..', name), path.join(usr, 'lib', name));
  }
  await mkdir(path.join(usr, 'var/lib/apptainer/mnt/session'), { recursive: true });

  const triplet = readdirSync(path.join(usr, 'lib')).find((name) => name.endsWith('-linux-gnu'));
  const libraries = path.join('usr', 'lib', triplet);
  const loader = readdirSync(path.join(tree, libraries)).find((name) => name.startsWith('ld-linux'));
  const final = path.join(prefix, libraries);
  const rpath = ['--force-rpath', '--set-rpath', final];
  for (const name of ['usr/bin/apptainer', path.join(libraries, 'apptainer/bin/starter')]) {
    const interpreter = ['--set-interpreter', path.join(final, loader)];
    await run('patchelf', [...interpreter, ...rpath, path.join(tree, name)]);
  }
  for (const name of ['libseccomp.so.2', 'libsqlite3.so.0']) {
    await run('patchelf', [...rpath, realpathSync(path.join(tree, libraries, name))]);
  }
}
