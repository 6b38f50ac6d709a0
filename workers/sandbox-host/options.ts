import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import type { SandboxBackendName } from '../../contracts/sandbox.ts';
import type { AuditOptions, AuditTimes } from './audit.ts';
import type { SandboxHost } from './host.ts';

/** Everything a sandbox host is started with. */
export interface SandboxHostOptions {
  /** Folder of the host's state; the host keeps to its subfolder `host`. */
  readonly stateDir: string;
  /** This machine's name, as returned with every sandbox. */
  readonly host: string;
  readonly backend: SandboxBackendName;
  /** Sandboxes of agents that may exist at once. */
  readonly capacity: number;
  /** Sandboxes of graders that may exist beside them. */
  readonly graderCapacity: number;
  /** The bubblewrap program, used by that backend alone. */
  readonly bwrapPath: string;
  /** The apptainer or singularity program, used by that backend alone. */
  readonly apptainerPath?: string | undefined;
  /** Image of apptainer sandboxes that name none; they show the host's own /usr if it is not set. */
  readonly image?: string | undefined;
  /**
   * Looks up whether a rollout's workflow run is still open. Without it, a sandbox that nobody asks about is kept
   * until `audit.unknownMs` is over.
   */
  readonly isOpen?: AuditOptions['isOpen'];
  readonly audit?: Partial<AuditTimes>;
  readonly logger: Logger;
  /** Given the server of its API before that has routes, to look at the calls that come. */
  readonly observe?: (server: FastifyInstance, host: SandboxHost) => void;
}
