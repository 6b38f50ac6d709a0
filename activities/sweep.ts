import { setTimeout as delay } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import { type Client, isGrpcServiceError, WorkflowNotFoundError } from '@temporalio/client';
import { messageOf } from '../contracts/failures.ts';
import { visibilityQuery } from '../contracts/filter.ts';
import { CANCEL_SIGNAL, type CancelSignal } from '../contracts/signals.ts';
import type { SignalRestInput, SweepActivities } from '../contracts/sweep.ts';
import { closedRollout } from './closed-rollout.ts';
import { conclude } from './conclude.ts';
import { withHeartbeat } from './heartbeat.ts';
import type { TrajectoryStore } from './trajectory/store.ts';

/** Signals under way at once: enough to keep a server busy, few enough to leave it room for others. */
const SIGNALS_AT_ONCE = 16;
/** Visibility is eventually consistent: a list is asked for until it has brought nothing new this often. */
const QUIET_ROUNDS = 2;
const ROUND_MS = 1000;
/** How far back closed rollouts are looked for; a schedule looks every few minutes. */
const CLOSED_WITHIN_MS = 24 * 3_600_000;

/** Activities that reach many rollouts through Temporal. */
export function makeSweepActivities({ store }: { readonly store: TrajectoryStore }): SweepActivities {
  // Ten sweeps of one batch at once would be ten signals to each of its rollouts, and a server that is too busy for
  // any: one after the other, the later ones find most of it ended.
  let turn: Promise<unknown> = Promise.resolve();
  return {
    signalRest: (input) => {
      const mine = { signalled: 0 };
      return withHeartbeat(
        () => mine,
        (context) => {
          const done = turn.then(() => signalRest(input, mine, context));
          turn = done.catch(() => {}); // its caller has the error
          return done;
        },
      );
    },
    recordClosed: () => recordClosed(store),
  };
}

async function signalRest(
  input: SignalRestInput,
  mine: { signalled: number },
  { client, log, cancellationSignal }: Context,
): Promise<{ signalled: number }> {
  cancellationSignal.throwIfAborted();
  const told = new Set(input.aborted);
  const { rolloutIds, batchId, groupId, belowVersion } = input.selection;
  const tell = async (ids: readonly string[]) => {
    const rest = ids.filter((id) => !told.has(id));
    for (const id of rest) told.add(id);
    const queue = [...rest];
    const worker = async () => {
      for (let id = queue.pop(); id !== undefined; id = queue.pop()) {
        try {
          if (await signalCancel(client, id, { reason: input.reason })) mine.signalled++;
        } catch (error) {
          if (!isBusy(error)) throw error;
          log.warn('told again in the next round', { rollout: id, problem: messageOf(error) });
          told.delete(id);
        }
      }
    };
    await Promise.all(Array.from({ length: SIGNALS_AT_ONCE }, worker));
    return rest.length;
  };
  const nextRound = () => delay(ROUND_MS, undefined, { signal: cancellationSignal });
  const tellAll = async (ids: readonly string[]) => {
    for (await tell(ids); ids.some((id) => !told.has(id)); await tell(ids)) await nextRound();
  };
  await tellAll(input.unheld ?? []);
  if (batchId === undefined && groupId === undefined && belowVersion === undefined) {
    await tellAll(rolloutIds ?? []);
  } else {
    const named = rolloutIds && new Set(rolloutIds);
    const query = [
      visibilityQuery({
        ...(batchId === undefined ? {} : { batchId }),
        ...(groupId === undefined ? {} : { groupId }),
      }),
      `ExecutionStatus = 'Running'`,
      // Hosts know what their rollouts have sampled under, and have stopped those. Of open rollouts only those
      // say it themselves whose workspaces the store keeps.
      ...(belowVersion === undefined ? [] : [`PolicyVersion < ${belowVersion}`]),
    ].join(' AND ');
    for (let quiet = 0; quiet < QUIET_ROUNDS; ) {
      const listed: string[] = [];
      for await (const { workflowId } of client.workflow.list({ query })) {
        if (!named || named.has(workflowId)) listed.push(workflowId);
      }
      quiet = (await tell(listed)) === 0 ? quiet + 1 : 0;
      if (quiet < QUIET_ROUNDS) await nextRound();
    }
  }
  return mine;
}

/** Of gRPC: DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE. */
const BUSY: readonly number[] = [4, 8, 14];

function isBusy(error: unknown): error is Error {
  const { cause } = error as Error;
  return isGrpcServiceError(cause) && BUSY.includes(cause.code);
}

/** False if the rollout has ended, or there is none. */
async function signalCancel(client: Client, rolloutId: string, signal: CancelSignal): Promise<boolean> {
  try {
    await client.workflow.getHandle(rolloutId).signal(CANCEL_SIGNAL, signal);
    return true;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return false;
    throw error;
  }
}

async function recordClosed(store: TrajectoryStore): Promise<{ recorded: number }> {
  const context = Context.current();
  const since = new Date(Date.now() - CLOSED_WITHIN_MS).toISOString();
  const closed = `ExecutionStatus IN ('Terminated', 'TimedOut', 'Canceled') AND CloseTime > '${since}'`;
  let recorded = 0;
  for await (const execution of context.client.workflow.list({
    query: `${visibilityQuery({})} AND ${closed}`,
  })) {
    context.heartbeat({ recorded });
    const { workflowId, status } = execution;
    try {
      if (await recordOne(context.client, store, workflowId, status.name)) recorded++;
    } catch (error) {
      // One that was started past the client, with who knows what for a request, keeps none of the others back; the
      // schedule comes again.
      context.log.warn('no record could be kept', { rollout: workflowId, problem: messageOf(error) });
    }
  }
  return { recorded };
}

/** False if there is a record, or nothing to be recorded yet. */
async function recordOne(
  client: Client,
  store: TrajectoryStore,
  rolloutId: string,
  status: string,
): Promise<boolean> {
  if (await store.getTerminal(rolloutId)) return false;
  // Started again under the same id, it is not at its end.
  if ((await client.workflow.getHandle(rolloutId).describe()).status.name === 'RUNNING') return false;
  const message = `closed from outside: ${status.toLowerCase()}`;
  const { request, result } = await closedRollout(client, rolloutId, message);
  await conclude(store, { request, attempt: result.attempt, result });
  return true;
}
