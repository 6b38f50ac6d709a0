import { createHash } from 'node:crypto';
import path from 'node:path';
import { RolloutError } from '../../contracts/failures.ts';

/** Longest path of a Unix socket, its final NUL excluded (sun_path of unix(7)). */
const MAX_SOCKET_PATH = 107;

/** Where a sandbox host keeps its things, all below `<stateDir>/host`. */
export interface HostPaths {
  readonly root: string;
  readonly socket: string;
  readonly token: string;
  /** Which process holds this folder. */
  readonly owner: string;
  /** Which process ends the sandboxes when the host is killed. */
  readonly reaper: string;
  /** Counts the host's starts; the base of its fences. */
  readonly epoch: string;
  /** One folder per sandbox, gone when it is released. */
  readonly sandboxes: string;
  /** One folder per rollout, kept after release. */
  readonly ledgers: string;
  /** Files and programs that backends share between sandboxes. */
  readonly shared: string;
}

/**
 * The paths of the host whose state lies in `stateDir`.
 * @throws RolloutError SandboxUnavailable when the socket's path would be too long for the kernel.
 */
export function hostPaths(stateDir: string): HostPaths {
  const root = path.resolve(stateDir, 'host');
  const socket = path.join(root, 'socket');
  const bytes = Buffer.byteLength(socket);
  if (bytes > MAX_SOCKET_PATH) {
    throw new RolloutError(
      'SandboxUnavailable',
      `the sandbox host's socket ${socket} has ${bytes} bytes, the kernel allows ${MAX_SOCKET_PATH}: ` +
        'set state.folder (--state-dir) to a shorter path',
    );
  }
  return {
    root,
    socket,
    token: path.join(root, 'token'),
    owner: path.join(root, 'owner.json'),
    reaper: path.join(root, 'reaper.json'),
    epoch: path.join(root, 'epoch'),
    sandboxes: path.join(root, 'sandboxes'),
    ledgers: path.join(root, 'ledgers'),
    shared: path.join(root, 'shared'),
  };
}

/**
 * With what the ids of all sandboxes of the host at `root` begin, and no others of this machine: what carries such
 * a name is this host's to clear.
 */
export function sandboxPrefix(root: string): string {
  return `sb-${createHash('sha256').update(root).digest('hex').slice(0, 6)}-`;
}

/**
 * Folder for temporary files of a sandbox that sees the host's own /tmp. Its path is short, as sockets need it, and
 * known by name, so that whoever clears after a sandbox finds it.
 */
export function temporaryFolder(sandboxId: string): string {
  return path.join('/tmp', sandboxId);
}

/** A name as one component of a path: itself if it is harmless, else percent-encoded. */
export function fileName(name: string): string {
  const encoded = encodeURIComponent(name);
  return encoded.startsWith('.') ? `%2E${encoded.slice(1)}` : encoded;
}
