import path from 'node:path';
import type { SandboxHostOptions } from '../options.ts';
import type { HostPaths } from '../paths.ts';
import { ApptainerBackend } from './apptainer.ts';
import type { Backend } from './backend.ts';
import { BubblewrapBackend } from './bubblewrap.ts';
import { ProcessBackend } from './process.ts';

/** The backend that the options name. The only place that tells backends apart. */
export function makeBackend(
  options: Pick<SandboxHostOptions, 'backend' | 'bwrapPath' | 'apptainerPath' | 'image'>,
  paths: HostPaths,
): Backend {
  switch (options.backend) {
    case 'apptainer':
      return new ApptainerBackend({
        program: options.apptainerPath ?? '',
        image: options.image,
        sharedDir: path.join(paths.shared, 'apptainer'),
      });
    case 'bubblewrap':
      return new BubblewrapBackend(options.bwrapPath, path.join(paths.shared, 'bubblewrap'));
    case 'process':
      return new ProcessBackend();
  }
}
