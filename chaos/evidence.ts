import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { tsToMs } from '@temporalio/common/lib/time.js';
import { parseLedger } from '../activities/trajectory/ledger-file.ts';
import { readTrajectory, TrajectoryStore } from '../activities/trajectory/store.ts';
import type { LedgerLine, LedgerRecord } from '../contracts/ledger.ts';
import type { RolloutResult } from '../contracts/result.ts';
import type { Trajectory } from '../contracts/trajectory.ts';
import { hostPaths } from '../workers/sandbox-host/paths.ts';
import type { Cluster } from './cluster.ts';
import { type Flight, whileAway } from './fleet.ts';

/** One activity of a history: who ran it, when, and how it ended. */
export interface ActivityEvidence {
  readonly type: string;
  /** `<pid>@<machine>` of the worker; null if none took it. */
  readonly identity: string | null;
  readonly startedAt: number | null;
  readonly endedAt: number;
  readonly how: 'completed' | 'failed' | 'timedOut' | 'cancelled';
}

/** Everything that is left of one rollout, wherever it lies. */
export interface Evidence {
  readonly flight: Flight;
  /** As the store has it. */
  readonly terminal: RolloutResult | undefined;
  readonly trajectory: Trajectory | undefined;
  /** The ledger in the store, of the last attempt. */
  readonly stored: readonly LedgerRecord[] | undefined;
  /** By attempt, from 1: what the sandbox hosts kept. */
  readonly ledgers: ReadonlyMap<number, readonly LedgerLine[]>;
  readonly activities: readonly ActivityEvidence[];
  /** Its last sandbox died with its host, and nobody could copy its ledger to the store. */
  readonly lostWithHost: boolean;
}

/** Collects what the store, the sandbox hosts and Temporal have of a rollout that has ended. */
export async function evidenceOf(
  cluster: Cluster,
  flight: Flight,
  hostDeaths: readonly { readonly at: number; readonly target: string }[] = [],
): Promise<Evidence> {
  const store = new TrajectoryStore(cluster.store.folder);
  const { rolloutId, result } = flight;
  const terminal = await store.getTerminal(rolloutId);
  const { workflowRunId = '', attempt = 0 } = result ?? {};
  const lines = terminal?.trajectory ? await readTrajectory(terminal.trajectory) : [];
  const found = cluster.stateFolders.flatMap((folder) => ledgersIn(folder, rolloutId));
  // An init that was lost leaves an empty one on its host; an attempt that left its host goes on with a copy.
  const ledgers = new Map(
    found.filter(([, { length }]) => length > 0).sort(([, a], [, b]) => a.length - b.length),
  );
  const begun = Date.parse(ledgers.get(attempt)?.[0]?.at ?? '');
  return {
    flight,
    terminal,
    trajectory: lines[0],
    stored: await store.getLedger({ rolloutId, workflowRunId, attempt }),
    ledgers,
    activities: await activitiesOf(cluster, rolloutId),
    lostWithHost: hostDeaths.some(({ at, target }) => at > begun && target === `host-${terminal?.host}`),
  };
}

function ledgersIn(stateFolder: string, rolloutId: string): [number, LedgerLine[]][] {
  const folder = path.join(hostPaths(stateFolder).ledgers, rolloutId);
  if (!existsSync(folder)) return [];
  return readdirSync(folder).flatMap((name): [number, LedgerLine[]][] => {
    const attempt = /\.(\d+)\.jsonl$/.exec(name)?.[1];
    if (attempt === undefined) return [];
    const file = path.join(folder, name);
    return [[Number(attempt), parseLedger(readFileSync(file), file).lines]];
  });
}

async function activitiesOf(cluster: Cluster, rolloutId: string): Promise<ActivityEvidence[]> {
  const handle = cluster.client.temporal.workflow.getHandle(rolloutId);
  const { events } = await whileAway(() => handle.fetchHistory());
  const types = new Map<string, string>();
  const starts = new Map<string, { identity: string; at: number }>();
  const activities: ActivityEvidence[] = [];
  for (const event of events ?? []) {
    const at = event.eventTime ? tsToMs(event.eventTime) : 0;
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled) types.set(String(event.eventId), scheduled.activityType?.name ?? '');
    const started = event.activityTaskStartedEventAttributes;
    if (started) starts.set(String(started.scheduledEventId), { identity: started.identity ?? '', at });
    for (const [how, attributes] of [
      ['completed', event.activityTaskCompletedEventAttributes],
      ['failed', event.activityTaskFailedEventAttributes],
      ['timedOut', event.activityTaskTimedOutEventAttributes],
      ['cancelled', event.activityTaskCanceledEventAttributes],
    ] as const) {
      if (!attributes) continue;
      const id = String(attributes.scheduledEventId);
      const start = starts.get(id);
      activities.push({
        type: types.get(id) ?? '',
        identity: start?.identity ?? null,
        startedAt: start?.at ?? null,
        endedAt: at,
        how,
      });
    }
  }
  return activities;
}
