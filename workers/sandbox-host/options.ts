import type { Logger } from 'pino';
import type { SandboxBackendName } from '../../contracts/sandbox.ts';

/** Everything a sandbox host is started with. */
export interface SandboxHostOptions {
  /** Folder of the host's state; the host keeps to its subfolder `host`. */
  readonly stateDir: string;
  /** This machine's name, as returned with every sandbox. */
  readonly host: string;
  readonly backend: SandboxBackendName;
  /** Sandboxes that may exist at once. */
  readonly capacity: number;
  /** The bubblewrap program, used by that backend alone. */
  readonly bwrapPath: string;
  /** The apptainer or singularity program, used by that backend alone. */
  readonly apptainerPath?: string | undefined;
  /** Image of apptainer sandboxes that name none; they show the host's own /usr if it is not set. */
  readonly image?: string | undefined;
  readonly logger: Logger;
}
