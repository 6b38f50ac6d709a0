import { run } from '../lib/command.mjs';
import { explain } from '../lib/failure.mjs';
import { findOnPath, readIfThere } from '../lib/files.mjs';

/** Programs of util-linux that the sandbox host uses, beside bubblewrap. */
const UTIL_LINUX = ['nsenter', 'setpriv', 'prlimit'];

const PROCESS_MODE = 'or start with --sandbox=process, after reading what that means';

/**
 * Finds bubblewrap and starts a real sandbox with it. Value: its absolute path, or '' when there is none.
 * A sandbox that does not work is a warning here: the service itself refuses to run model-written code
 * without one, unless the person allows it, and much of it (tests, mathematics) can still be looked at.
 */
export const sandbox = {
  title: 'Sandbox',
  async run({ env, platform }, report, needs) {
    if (platform !== 'linux') {
      report.warn(
        `bubblewrap sandboxes exist on Linux only: use a Linux machine or container, ${PROCESS_MODE}`,
      );
      return { value: '', summary: 'none on this platform' };
    }
    warnOfMissingPrograms(env, report);
    const attempts = [];
    const attempt = async (what, file) => {
      try {
        return { value: file, summary: `${await startSandbox(file)}, ${what}: ${file}` };
      } catch (error) {
        attempts.push({ file, error: explain(error) });
        return undefined;
      }
    };

    // The system's own first: Ubuntu's AppArmor may allow that one and no other.
    for (const file of findOnPath('bwrap', env.PATH)) {
      const found = await attempt('on PATH', file);
      if (found) return found;
    }
    const { bwrap } = await needs('python');
    const found = await attempt('from the Python environment', bwrap);
    if (found) return found;

    for (const { file, error } of attempts)
      report.warn(`${file} starts no sandbox: ${error.split('\n').at(-1)}`);
    for (const text of kernelAdvice()) report.warn(text);
    return { value: bwrap, summary: 'found, but does not work here: see the notes above' };
  },
};

/** Starts `true` in a sandbox of the kind that the service uses. Returns bubblewrap's version. */
async function startSandbox(bwrap) {
  const options = [
    '--unshare-all',
    '--die-with-parent',
    '--ro-bind',
    '/',
    '/',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
  ];
  await run(bwrap, [...options, '--tmpfs', '/tmp', 'true'], { timeoutMs: 20_000 });
  const { stdout } = await run(bwrap, ['--version'], { timeoutMs: 20_000 });
  return stdout.trim();
}

function warnOfMissingPrograms(env, report) {
  const missing = UTIL_LINUX.filter((name) => findOnPath(name, env.PATH).length === 0);
  if (missing.length === 0) return;
  report.warn(
    `${missing.join(', ')} not found on PATH: sandboxes need the package util-linux (apt, dnf, apk)`,
  );
}

/**
 * Which of the kernel's settings forbids sandboxes to ordinary users, and how to allow them.
 * @param {(name: string) => string | undefined} [read] a setting's value, undefined where it does not exist
 */
export function kernelAdvice(read = (name) => readIfThere(`/proc/sys/${name}`)) {
  const value = (name) => read(name)?.trim();
  const advice = [];
  if (value('kernel/apparmor_restrict_unprivileged_userns') === '1') {
    advice.push(
      'AppArmor forbids user namespaces here (kernel.apparmor_restrict_unprivileged_userns=1): ' +
        'apt install bubblewrap, whose AppArmor profile allows them, ' +
        'or sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0',
    );
  }
  if (value('user/max_user_namespaces') === '0') {
    advice.push(
      'the kernel allows no user namespaces here (user.max_user_namespaces=0): ' +
        'sudo sysctl user.max_user_namespaces=15000',
    );
  }
  if (value('kernel/unprivileged_userns_clone') === '0') {
    advice.push(
      'the kernel keeps user namespaces from ordinary users here (kernel.unprivileged_userns_clone=0): ' +
        'sudo sysctl kernel.unprivileged_userns_clone=1',
    );
  }
  if (advice.length === 0) {
    advice.push(
      'in a container? Its seccomp profile or masked /proc may forbid namespaces ' +
        '(docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined)',
    );
  }
  return [...advice, PROCESS_MODE];
}
