import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { RolloutError } from '../../../contracts/failures.ts';
import { AS_ROOT, owned } from './owned.ts';
import { SYSTEM_PATH } from './staging.ts';

/** How one of the two programs is told what they do not have in common. */
export interface Runtime {
  /** Its name and version, as it says them. */
  readonly version: string;
  /** The beginning of an argv: what makes the namespaces in which it runs, if it does not itself. */
  readonly asRoot: readonly string[];
  /** How many PID namespaces, each in the one before, are between what runs in a sandbox and the host: one is the sandbox's. */
  readonly depth: number;
  readonly flags: readonly string[];
}

/** The first version of SingularityCE that can be kept from unpacking images. */
const FIRST_MAJOR = 4;

/**
 * Asks the program what it is. One user id is to be mapped, the host's own as root: no other could be had without
 * privileges, and files of other ids could not be removed by the host.
 * @throws RolloutError SandboxUnavailable if it is none that can be used
 */
export async function findRuntime(program: string): Promise<Runtime> {
  const env = { PATH: SYSTEM_PATH };
  const { stdout } = await promisify(execFile)(program, ['--version'], { env });
  const version = stdout.trim();
  if (version.startsWith('apptainer')) {
    return {
      version,
      asRoot: [],
      depth: 1,
      flags: ['--fakeroot', '--ignore-subuid', '--ignore-fakeroot-command'],
    };
  }
  const [, major] = /^singularity\S* version (\d+)\./.exec(version) ?? [];
  if (major === undefined || Number(major) < FIRST_MAJOR) {
    throw new RolloutError(
      'SandboxUnavailable',
      `it says that it is "${version}": Apptainer, or SingularityCE from ${FIRST_MAJOR}.0 on, is needed`,
    );
  }
  // Its --fakeroot wants newuidmap and a range of /etc/subuid; as root of a namespace it needs neither. It shows a SIF
  // before it makes namespaces of its own, by a helper that leaves its session and outlives it (squashfuse). Nor may it
  // unpack an image, on a disk that nothing bounds, where it cannot show it.
  return { version, asRoot: owned(AS_ROOT), depth: 2, flags: ['--no-tmp-sandbox'] };
}
