import { setTimeout as delay } from 'node:timers/promises';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { Config } from '../../config/load.ts';
import { messageOf, RolloutError } from '../../contracts/failures.ts';
import type { RolloutFilter } from '../../contracts/filter.ts';
import type { CancelReason } from '../../contracts/request.ts';
import type { RolloutStatus } from '../../contracts/signals.ts';
import type { Selection } from '../../contracts/sweep.ts';
import type { Output } from '../output.ts';
import { RolloutClient } from '../rollout-client.ts';

/** Which rollouts a command is about: named ones, or all open ones of a batch or group. */
export interface Chosen {
  readonly rolloutIds: readonly string[];
  readonly batch?: string;
  readonly group?: string;
}

/** Those of `rollouts pause` and `rollouts resume`: all open ones that match every given part. */
interface Matching extends Chosen {
  readonly task?: string;
  readonly kind?: string;
  readonly host?: string;
}

/** `rollouts cancel`: one by its signal, many by a sweep over the hosts. */
export async function cancelCommand(
  config: Config,
  chosen: Chosen & { readonly belowVersion?: number },
  reason: CancelReason,
  output: Output,
): Promise<number> {
  const { belowVersion } = chosen;
  const { rolloutIds, ...many } = belowVersion === undefined ? named(chosen) : partsOf(chosen);
  const client = await RolloutClient.connect(config);
  try {
    if (rolloutIds?.length === 1 && belowVersion === undefined && Object.keys(many).length === 0) {
      return await eachOf(rolloutIds, output, async (id) =>
        (await client.cancel(id, reason)) ? `told to end (${reason})` : 'has ended',
      );
    }
    const selection: Selection = {
      ...many,
      ...(rolloutIds ? { rolloutIds } : {}),
      ...(belowVersion === undefined ? {} : { belowVersion }),
    };
    const hint = setTimeout(() => void whyNoAnswer(client).then(output.note), HINT_MS);
    const report = await client.cancelMany(selection, reason).finally(() => clearTimeout(hint));
    const unknown = await unknownOf(client, rolloutIds ?? []);
    output.result({ ...report, unknown }, () => {
      const silent = report.silentHosts.length > 0 ? `; no answer from ${report.silentHosts.join(', ')}` : '';
      const missing = unknown.length > 0 ? `; there is no rollout ${unknown.join(', ')}` : '';
      return `${report.aborted} stopped on their hosts, ${report.signalled} told to end${silent}${missing}`;
    });
    return unknown.length === 0 ? 0 : 1;
  } finally {
    await client.close();
  }
}

/** Milliseconds without an answer after which `rollouts cancel` says what it waits for. */
const HINT_MS = 15_000;

async function whyNoAnswer(client: RolloutClient): Promise<string> {
  const up = await client.hasWorkflowWorker().catch(() => false);
  if (up) return 'no answer yet: hosts and rollouts are still being told, while this command waits';
  return 'no answer yet: no workflow worker is up. It is told once one is, while this command waits';
}

/** Those of the named rollouts that Temporal knows nothing of. */
async function unknownOf(client: RolloutClient, ids: readonly string[]): Promise<string[]> {
  const unknown: string[] = [];
  for (const [id, end] of await forEach(ids, (rolloutId) => client.isOpen(rolloutId))) {
    if (end.status === 'fulfilled') continue;
    if (!(end.reason instanceof WorkflowNotFoundError)) throw end.reason;
    unknown.push(id);
  }
  return unknown;
}

/** Milliseconds that `rollouts pause` waits until all have paused. */
const PAUSE_MS = 10_000;

/** What is said of one that has been told to pause, and is still there then. */
const PAUSES_LATER: Partial<Record<RolloutStatus['stage'], string>> = {
  queued: 'waits for a sandbox; told to pause when it has one',
  init: 'waits for a sandbox, or for its preparation; told to pause then',
  run: 'told to pause when its tool call has ended',
  evaluate: 'is being graded, which no pause stops',
};

/**
 * `rollouts pause` and `rollouts resume`. All are told before one is waited for: those that wait for a sandbox can
 * only pause when they have one, which may be never while others keep theirs.
 */
export async function pauseCommand(
  config: Config,
  action: 'pause' | 'resume',
  chosen: Matching,
  output: Output,
): Promise<number> {
  const { rolloutIds, ...filter } = matching(chosen);
  const client = await RolloutClient.connect(config);
  try {
    const ids = [...(rolloutIds ?? [])];
    if (Object.keys(filter).length > 0) for await (const id of openIds(client, filter)) ids.push(id);
    if (ids.length > 1) {
      await forEach(ids, (id) => client.temporal.workflow.getHandle(id).signal(action)); // whose problems show below
    }
    const enough = delay(PAUSE_MS, undefined, { ref: false });
    return await eachOf(ids, output, async (id) => {
      const status = await Promise.race([client[action](id), enough.then(() => client.status(id))]);
      if (!status || status.stage === 'ended') return 'has ended';
      return (action === 'pause' && PAUSES_LATER[status.stage]) || status.stage;
    });
  } finally {
    await client.close();
  }
}

/** @throws RolloutError InvalidRequest if nothing is chosen: no command is about everything by accident. */
function named(chosen: Chosen) {
  const parts = partsOf(chosen);
  if (Object.keys(parts).length > 0) return parts;
  throw new RolloutError('InvalidRequest', 'name rollouts, or choose them with --batch or --group');
}

/** @throws RolloutError InvalidRequest if nothing is chosen */
function matching({ task, kind, host, ...chosen }: Matching) {
  const rest: RolloutFilter = {
    ...(task === undefined ? {} : { taskId: task }),
    ...(kind === undefined ? {} : { handler: kind }),
    ...(host === undefined ? {} : { host }),
  };
  return { ...(Object.keys(rest).length > 0 ? partsOf(chosen) : named(chosen)), ...rest };
}

function partsOf({ rolloutIds, batch, group }: Chosen) {
  return {
    ...(rolloutIds.length > 0 ? { rolloutIds: [...rolloutIds] } : {}),
    ...(batch === undefined ? {} : { batchId: batch }),
    ...(group === undefined ? {} : { groupId: group }),
  };
}

async function* openIds(client: RolloutClient, filter: RolloutFilter): AsyncIterable<string> {
  for await (const { rolloutId, workflowState } of client.list(filter)) {
    if (workflowState === 'RUNNING') yield rolloutId;
  }
}

/** Does it to each, some at a time, and says how each went. @returns 1 if any went wrong, else 0. */
async function eachOf(
  ids: readonly string[],
  output: Output,
  act: (rolloutId: string) => Promise<string>,
): Promise<number> {
  const said: Record<string, string> = {};
  let problems = 0;
  for (const [id, end] of await forEach(ids, act)) {
    if (end.status === 'rejected') problems++;
    said[id] = end.status === 'fulfilled' ? end.value : messageOf(end.reason);
  }
  output.result({ asked: ids.length - problems, problems, rollouts: said }, () =>
    ids.length === 0
      ? 'no open rollout is in it'
      : Object.entries(said)
          .map(([id, what]) => `${id}: ${what}`)
          .join('\n'),
  );
  return problems === 0 ? 0 : 1;
}

async function forEach<R>(ids: readonly string[], act: (rolloutId: string) => Promise<R>) {
  const ends: [string, PromiseSettledResult<R>][] = [];
  const queue = [...ids];
  const worker = async () => {
    for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
      const [end] = await Promise.allSettled([act(id)]);
      ends.push([id, end]);
    }
  };
  await Promise.all(Array.from({ length: 16 }, worker));
  return ends;
}
