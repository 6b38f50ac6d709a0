import { setTimeout as delay } from 'node:timers/promises';
import { type Client, WorkflowUpdateFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { LlmServer } from '../../contracts/llm.ts';
import {
  POLICY_LABEL,
  POOL_STATE_QUERY,
  type PoolInput,
  type PoolReport,
  type PoolState,
  type PoolUpdate,
  poolWorkflowId,
  versionOf,
} from '../../contracts/pool.ts';
import type { AddServer, RemoveServer, SwapWeights } from '../../contracts/pool-commands.ts';
import { startPool } from './start.ts';

/** Servers that are still loading their model are asked again after so long. */
const AGAIN_MS = 2_000;
/** Requests under way on servers that are replaced may take so long to end. */
const DRAIN_SECONDS = 600;

export interface SeedOptions {
  readonly client: Client;
  readonly input: PoolInput;
  /** What the configuration names. */
  readonly servers: readonly LlmServer[];
  readonly signal: AbortSignal;
  report(line: string): void;
}

/**
 * Makes the configured servers members of the pool, and takes out those that an earlier configuration had made so.
 * Members that a person added stay, unless all configured servers have a newer policy version: then these take their place,
 * as in a blue/green swap. A server that does not answer yet is waited for; one that is in the pool keeps the policy
 * version that it was swapped to, if that is newer.
 * @throws an ApplicationFailure if the pool refuses a server: its message says what differs
 */
export async function seedPool({ client, input, servers, signal, report }: SeedOptions): Promise<void> {
  await startPool(client, input);
  const handle = client.workflow.getHandle(poolWorkflowId(input.pool));
  const change = async (name: PoolUpdate, command: AddServer | RemoveServer | SwapWeights) => {
    const args: [unknown] = [command];
    await handle.executeUpdate<PoolReport, [unknown]>(name, { args }).catch((error: unknown) => {
      throw error instanceof WorkflowUpdateFailedError ? error.cause : error;
    });
  };
  const state = await handle.query<PoolState>(POOL_STATE_QUERY);
  const { members } = state;
  const urlOf = ({ url }: LlmServer) => url.replace(/\/+$/, '');
  const wanted = new Set(servers.map(urlOf));
  for (const { server, seeded } of members) {
    if (seeded && !wanted.has(server.url)) await change('remove', { url: server.url });
  }
  const whenUp = async (name: PoolUpdate, command: AddServer | SwapWeights) => {
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        return await change(name, command);
      } catch (error) {
        if (!(error instanceof ApplicationFailure) || error.type !== 'LlmUnreachable') throw error;
        if (tries === 0) report(`waiting for an LLM server: ${error.message}`);
      }
      await delay(AGAIN_MS, undefined, { signal }).catch(() => {}); // told to stop: the loop ends
    }
  };
  const version = Math.min(...servers.map(({ policyVersion }) => policyVersion));
  const before = versionOf(state);
  if (before !== undefined && servers.length > 0 && version > before) {
    report(`servers of policy version ${version} take the place of those of version ${before}`);
    const others = { servers: servers.map((server) => ({ ...server, url: urlOf(server) })), version };
    await whenUp('swap', { mode: 'blueGreen', ...others, label: POLICY_LABEL, drainSeconds: DRAIN_SECONDS });
  }
  const add = (server: LlmServer) => {
    const url = urlOf(server);
    const there = members.find((member) => member.server.url === url);
    const policyVersion = Math.max(there?.server.policyVersion ?? 0, server.policyVersion);
    const labels = [...(there?.labels ?? [POLICY_LABEL])];
    return whenUp('add', { server: { ...server, url, policyVersion }, labels, seeded: true });
  };
  await Promise.all(servers.map(add));
}
