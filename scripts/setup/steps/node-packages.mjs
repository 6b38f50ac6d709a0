import path from 'node:path';
import { run } from '../lib/command.mjs';
import { SetupFailure } from '../lib/failure.mjs';
import { findOnPath, hashOf, readIfThere, readJsonIfThere, writeAtomically } from '../lib/files.mjs';
import { withLock } from '../lib/lock.mjs';

/** Brings the npm packages of the lock file. Value: nothing. */
export const nodePackages = {
  title: 'npm packages',
  async run({ root, env }, report) {
    const wanted = hashOf(
      readIfThere(path.join(root, 'package-lock.json')) ?? '',
      process.platform,
      process.arch,
    );
    const stamp = path.join(root, 'node_modules', '.set-up-done');
    const done = () => readIfThere(stamp) === wanted;
    if (done()) return { summary: 'as in the lock file' };

    return withLock(
      path.join(root, '.rollouts', 'npm.lock'),
      async () => {
        if (done()) return { summary: 'as in the lock file' };
        const present = await isInstalled(root);
        if (!present) await install(root, env, report);
        await writeAtomically(stamp, wanted);
        return { summary: present ? 'as in the lock file' : 'installed from the lock file' };
      },
      { onWait: (owner) => report.say(`waiting for ${owner}, which installs them too`) },
    );
  },
};

/**
 * Whether node_modules holds what the lock file says, by npm's own record in it, and the one package that
 * is compiled here loads: a checkout where someone ran npm by hand is not installed all over again.
 */
export async function isInstalled(root) {
  const lock = readJsonIfThere(path.join(root, 'package-lock.json'));
  const installed = readJsonIfThere(path.join(root, 'node_modules', '.package-lock.json'));
  if (lock === undefined || installed === undefined) return false;
  const differs = Object.entries(lock.packages).some(([name, { version, optional }]) => {
    const found = installed.packages[name];
    // npm leaves out optional packages for other platforms.
    if (name === '' || (optional && found === undefined)) return false;
    return found?.version !== version;
  });
  if (differs) return false;
  return run(process.execPath, ['-e', "require('node-pty')"], { cwd: root, timeoutMs: 20_000 }).then(
    () => true,
    () => false,
  );
}

async function install(root, env, report) {
  // Under `npm test` the npm that runs us is named; its own version wrote the lock file's rules.
  const [file, ...first] = env.npm_execpath ? [process.execPath, env.npm_execpath] : ['npm'];
  const args = [...first, 'ci', '--include=dev', '--no-audit', '--no-fund', '--foreground-scripts'];
  let fetched = 0;
  report.say('npm ci');
  try {
    await run(file, [...args, '--loglevel=http'], {
      cwd: root,
      env,
      onLine(line) {
        if (line.includes('http fetch')) report.progress(`${++fetched} packages fetched`);
        else if (line.includes('node-gyp')) report.progress('compiling node-pty');
      },
    });
  } catch (error) {
    throw new SetupFailure('the npm packages could not be installed', {
      attempts: [{ what: `npm ci in ${root}`, error: error.message }],
      advice: installAdvice(env),
    });
  }
}

/** node-pty is compiled where it has no ready binary; the usual reason for a failure is a missing tool. */
export function installAdvice(env) {
  const python = findOnPath('python3', env.PATH).length > 0;
  const make = findOnPath('make', env.PATH).length > 0;
  const compiler = ['g++', 'c++', 'clang++'].some((name) => findOnPath(name, env.PATH).length > 0);
  const missing = [
    ...(python ? [] : ['python3']),
    ...(make ? [] : ['make']),
    ...(compiler ? [] : ['g++ (or another C++ compiler)']),
  ];
  return [
    missing.length > 0
      ? `node-pty is compiled on this machine and needs ${missing.join(', ')}, not found on PATH: install ` +
        'them (Debian, Ubuntu: apt install python3 make g++; Fedora: dnf install python3 make gcc-c++; ' +
        'macOS: xcode-select --install)'
      : 'python3, make and a C++ compiler are there; look at the error above',
    'no network, or a proxy? npm takes its registry and proxy from ~/.npmrc (npm config list)',
    'then run the same command again: what has worked is kept',
  ];
}
