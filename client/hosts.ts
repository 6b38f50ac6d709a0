import type { Client } from '@temporalio/client';
// Not among the package's public names; heartbeats may have gone through the client's codec.
import { decodeFromPayloadsAtIndex } from '@temporalio/common/lib/internal-non-workflow/index.js';
import { HostStats } from '../contracts/sandbox.ts';

/** A sandbox host; without figures before its first heartbeat. */
export interface HostState {
  readonly host: string;
  readonly stats: HostStats | null;
}

/** How hosts stand, as each said in its last heartbeat. */
export function hostStates(temporal: Client, names: readonly string[]): Promise<HostState[]> {
  return Promise.all(
    names.map(async (host) => {
      const { raw } = await temporal.workflow.getHandle(`host:${host}`).describe();
      const heard = raw.pendingActivities?.[0]?.heartbeatDetails?.payloads;
      const { loadedDataConverter } = temporal.options;
      const said = heard ? await decodeFromPayloadsAtIndex(loadedDataConverter, 0, heard) : undefined;
      return { host, stats: HostStats.safeParse(said).data ?? null };
    }),
  );
}
