import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Creation, Handle } from './backend.ts';

/** First of the user ids of sandboxes: in what systemd's list of ranges leaves free, above all of directories. */
const FIRST = 2_100_000_000;
/** Ids of one host, and hosts of one machine that have others. */
const PER_HOST = 4096;
const HOSTS = 4096;

/** Where root itself has few ids (a container of its own user namespace), all sandboxes are this one. */
const NOBODY = 65_534;

/**
 * Who owns what runs inside, on a host that runs as root: a user id for each sandbox. As root, a process inside could
 * still write what root owns and no namespace covers (most of /proc/sys, the modes of device nodes); as one user,
 * sandboxes would share what the kernel counts by user (pipes, descriptors and signals on their way, queues).
 */
export class Owners {
  private readonly first: number;
  private readonly taken = new Map<string, number>();
  private next = 0;

  /** `stateFolder`: tells the hosts of one machine apart. */
  constructor(stateFolder: string, uidMap = readFileSync('/proc/self/uid_map', 'latin1')) {
    const place = createHash('sha256').update(stateFolder).digest().readUInt16LE() % HOSTS;
    const first = FIRST + place * PER_HOST;
    this.first = covers(uidMap, first, PER_HOST) ? first : NOBODY;
  }

  /** An id that no other sandbox has; the same if it is asked again. Null: the host's own user. */
  take(sandboxId: string): number | null {
    if (process.geteuid?.() !== 0) return null;
    if (this.first === NOBODY) return NOBODY;
    const known = this.taken.get(sandboxId);
    if (known !== undefined) return known;
    const inUse = new Set(this.taken.values());
    // In turn, so that what the kernel counts late of one that is gone is nobody's.
    do this.next = (this.next + 1) % PER_HOST;
    while (inUse.has(this.first + this.next) && inUse.size < PER_HOST);
    this.taken.set(sandboxId, this.first + this.next);
    return this.first + this.next;
  }

  /** Makes a sandbox with an owner of its own, or with that of the one beside which it is; no owner is kept if that fails. */
  async lend(
    { sandboxId, besides }: Pick<Creation, 'sandboxId' | 'besides'>,
    make: (owner: number | null) => Promise<Handle>,
  ): Promise<Handle> {
    try {
      return await make(besides ? besides.ownerUid : this.take(sandboxId));
    } catch (error) {
      this.giveBack(sandboxId);
      throw error;
    }
  }

  /** The sandbox is gone. */
  giveBack(sandboxId: string): void {
    this.taken.delete(sandboxId);
  }
}

/** Whether a table like /proc/self/uid_map (user_namespaces(7)) has `count` ids from `first` on. */
function covers(uidMap: string, first: number, count: number): boolean {
  return uidMap.split('\n').some((line) => {
    const [inside = 0, , length = 0] = line.trim().split(/\s+/).map(Number);
    return inside <= first && first + count <= inside + length;
  });
}
