import path from 'node:path';
import type { SandboxHostOptions } from '../options.ts';
import type { HostPaths } from '../paths.ts';
import type { Backend } from './backend.ts';
import { BubblewrapBackend } from './bubblewrap.ts';
import { ProcessBackend } from './process.ts';

/** The backend that the options name. The only place that tells backends apart. */
export function makeBackend(
  options: Pick<SandboxHostOptions, 'backend' | 'bwrapPath'>,
  paths: HostPaths,
): Backend {
  switch (options.backend) {
    case 'bubblewrap':
      return new BubblewrapBackend(options.bwrapPath, path.join(paths.shared, 'bubblewrap'));
    case 'process':
      return new ProcessBackend();
  }
}
