import type { Logger } from 'pino';
import { messageOf } from '../../../contracts/failures.ts';
import { divideCgroup, ownCgroup, SandboxCgroup } from '../limits/cgroup.ts';
import type { Backend, Creation, Entry, Handle, Program } from './backend.ts';

/** Puts itself into the cgroup `$1`, then runs the rest. Should that fail, watching still holds the limits. */
const JOIN = '{ echo 0 > "$1/cgroup.procs"; } 2>/dev/null; shift; exec "$@"';

/** `backend`, with cgroups where they have been handed to this process. `prefix`: of the ids of its sandboxes. */
export async function withCgroups(
  backend: Backend,
  prefix: string,
  logger: Pick<Logger, 'warn'>,
): Promise<Backend> {
  const cgroups = ownCgroup();
  if (cgroups.folder === null) return backend;
  try {
    await divideCgroup(cgroups.folder, prefix);
  } catch (error) {
    logger.warn({ problem: messageOf(error) }, 'limits are held without cgroups');
    return backend;
  }
  return inCgroups(backend, cgroups.folder, logger);
}

/** `backend`, each of its sandboxes in a cgroup of its own below `parent`. */
export function inCgroups(backend: Backend, parent: string, logger: Pick<Logger, 'warn'>): Backend {
  const own: Partial<Backend> = {
    guarantees: { ...backend.guarantees, limits: `${backend.guarantees.limits}; by cgroups below ${parent}` },

    probe: () => backend.probe(),

    async create(creation: Creation): Promise<Handle> {
      const handle = await backend.create(creation);
      const cgroup = new SandboxCgroup(parent, creation.sandboxId);
      try {
        cgroup.create(creation.spec.limits, handle.anchors.length);
        for (const { pid } of handle.anchors) cgroup.add(pid);
        return { ...handle, cgroup };
      } catch (error) {
        logger.warn({ sandbox: handle.sandboxId, problem: messageOf(error) }, 'it has no cgroup');
        return handle;
      }
    },

    enter(handle: Handle, program: Program): Entry {
      const entry = backend.enter(handle, program);
      if (!handle.cgroup) return entry;
      const args = ['-c', JOIN, 'join', handle.cgroup.folder, entry.file, ...entry.args];
      return { ...entry, file: '/bin/sh', args };
    },

    async destroy(handle: Handle): Promise<number> {
      const count = await backend.destroy(handle);
      await handle.cgroup?.remove();
      return count;
    },
  };
  return Object.assign(Object.create(backend) as Backend, own);
}
