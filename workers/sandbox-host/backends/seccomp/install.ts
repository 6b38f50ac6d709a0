import { chmodSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { RolloutError } from '../../../../contracts/failures.ts';
import { runQuietly } from '../wait.ts';
import { makeFilter } from './filter.ts';
import { launcherProgram } from './launcher-program.ts';
import { ABIS, type Processor } from './rules.ts';

/** What that program is called, in the folder that it is written to. */
export const FILTER_NAME = 'filtered';

/**
 * Writes the program that all which runs in a sandbox is started by into `folder`, and tries it. Returns its path: the
 * beginning of an argv whose rest has the filter.
 * @throws RolloutError SandboxUnavailable where there is no filter for the processor, or the kernel or the file system
 * refuses it
 */
export async function installFilter(folder: string): Promise<string> {
  const file = path.join(folder, FILTER_NAME);
  const processor = process.arch as Processor;
  if (!Object.hasOwn(ABIS, processor)) {
    throw new RolloutError('SandboxUnavailable', `no filter of system calls is known for ${process.arch}`);
  }
  // Beside and renamed: a program that runs cannot be written to.
  writeFileSync(`${file}.new`, launcherProgram(processor, makeFilter(processor)));
  chmodSync(`${file}.new`, 0o755);
  renameSync(`${file}.new`, file);
  const trial = await runQuietly(file, ['/bin/true'], {});
  if (trial.ok) return file;
  throw new RolloutError(
    'SandboxUnavailable',
    `no filter of system calls can be set here: ${trial.message} (${file} must lie where programs may be run, and ` +
      'the kernel must have CONFIG_SECCOMP_FILTER)',
  );
}
