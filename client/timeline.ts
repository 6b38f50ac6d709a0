import type { Client, WorkflowHandle } from '@temporalio/client';
import { ApplicationFailure, type LoadedDataConverter } from '@temporalio/common';
// Not among the packages' public names; heartbeats and failures may have gone through the client's codec.
import {
  decodeFromPayloadsAtIndex,
  decodeOptionalFailureToOptionalError,
} from '@temporalio/common/lib/internal-non-workflow/index.js';
import { CANCEL_SIGNAL, PAUSE, RESUME, type RolloutStatus, STATUS_QUERY } from '../contracts/signals.ts';
import type { RunPosition } from '../contracts/stages.ts';

/** One activity of a rollout, from when it was put in its queue. Times are ISO 8601; null: not yet, or never. */
export interface TimelineActivity {
  readonly activity: string;
  readonly queue: string;
  readonly scheduledAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  /** Null while it is open. */
  readonly end: 'completed' | 'failed' | 'timedOut' | 'cancelled' | null;
  /** Process that took it, as Temporal names it. */
  readonly worker: string | null;
  /** Type and message of the failure it ended with. */
  readonly failure: { readonly type: string | null; readonly message: string } | null;
}

/** When a rollout did what, as its workflow's history has it. */
export interface Timeline {
  readonly workflowRunId: string;
  readonly workflowState: string;
  readonly startedAt: string;
  readonly closedAt: string | null;
  readonly activities: readonly TimelineActivity[];
  /** Pauses, resumes and cancellations that were asked for. */
  readonly marks: readonly { readonly at: string; readonly what: string }[];
  /** Where it stands; null once it is closed, or while no workflow worker answers. */
  readonly status: RolloutStatus | null;
  /** Of the agent that works now, by its worker's last heartbeat. */
  readonly position: RunPosition | null;
}

/** How long a workflow worker may take to say where a rollout stands, in milliseconds; without it the rest is told. */
const STATUS_WITHIN_MS = 3_000;

/** The timeline of a rollout, as long as Temporal remembers it. @throws WorkflowNotFoundError */
export async function timelineOf(temporal: Client, rolloutId: string): Promise<Timeline> {
  const { loadedDataConverter } = temporal.options;
  const handle = temporal.workflow.getHandle(rolloutId);
  const { raw, runId, status: state, startTime, closeTime } = await handle.describe();
  const history = await temporal.workflow.getHandle(rolloutId, runId).fetchHistory();
  const isOpen = state.name === 'RUNNING';
  const status = isOpen
    ? await temporal.connection
        .withDeadline(Date.now() + STATUS_WITHIN_MS, () => handle.query<RolloutStatus>(STATUS_QUERY))
        .catch(() => null)
    : null;
  const pending = raw.pendingActivities ?? [];
  const heard = pending.find(({ activityType }) => activityType?.name === 'run')?.heartbeatDetails?.payloads;
  return {
    workflowRunId: runId,
    workflowState: state.name,
    startedAt: startTime.toISOString(),
    closedAt: closeTime?.toISOString() ?? null,
    ...(await read(history, new Map(pending.map((one) => [one.activityId, one])), loadedDataConverter)),
    status,
    position: heard ? await decodeFromPayloadsAtIndex<RunPosition>(loadedDataConverter, 0, heard) : null,
  };
}

type History = Awaited<ReturnType<WorkflowHandle['fetchHistory']>>;

interface Moment {
  readonly seconds?: unknown;
  readonly nanos?: number | null;
}

/** `pending`: what is open, by activity id: the history has its start only once it has ended. */
async function read(
  history: History,
  pending: ReadonlyMap<
    string | null | undefined,
    { lastStartedTime?: Moment | null; lastWorkerIdentity?: string | null }
  >,
  converter: LoadedDataConverter,
): Promise<Pick<Timeline, 'activities' | 'marks'>> {
  const activities = new Map<
    string,
    { -readonly [part in keyof TimelineActivity]: TimelineActivity[part] }
  >();
  const marks: { at: string; what: string }[] = [];
  for (const event of history.events ?? []) {
    const at = isoOf(event.eventTime) ?? '';
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled) {
      const open = pending.get(scheduled.activityId);
      activities.set(String(event.eventId), {
        activity: scheduled.activityType?.name ?? '',
        queue: scheduled.taskQueue?.name ?? '',
        scheduledAt: at,
        startedAt: isoOf(open?.lastStartedTime),
        endedAt: null,
        end: null,
        worker: open?.lastWorkerIdentity || null,
        failure: null,
      });
    }
    const started = event.activityTaskStartedEventAttributes;
    const begun = started && activities.get(String(started.scheduledEventId));
    if (begun) Object.assign(begun, { startedAt: at, worker: started.identity || null });
    const [end, closed] = closingOf(event);
    const ended = closed && activities.get(String(closed.scheduledEventId));
    if (ended) {
      const error = await decodeOptionalFailureToOptionalError(converter, closed.failure);
      const type = error instanceof ApplicationFailure ? (error.type ?? null) : null;
      const failure = error ? { type, message: error.message } : null;
      Object.assign(ended, { endedAt: at, end, failure });
    }
    const what = askedBy(event);
    if (what) marks.push({ at, what });
  }
  return { activities: [...activities.values()], marks };
}

type Event = NonNullable<History['events']>[number];

interface Closing {
  readonly scheduledEventId?: unknown;
  readonly failure?: Parameters<typeof decodeOptionalFailureToOptionalError>[1];
}

function closingOf(event: Event): [TimelineActivity['end'], Closing | null | undefined] {
  if (event.activityTaskCompletedEventAttributes)
    return ['completed', event.activityTaskCompletedEventAttributes];
  if (event.activityTaskFailedEventAttributes) return ['failed', event.activityTaskFailedEventAttributes];
  if (event.activityTaskTimedOutEventAttributes)
    return ['timedOut', event.activityTaskTimedOutEventAttributes];
  if (event.activityTaskCanceledEventAttributes)
    return ['cancelled', event.activityTaskCanceledEventAttributes];
  return [null, null];
}

/** Signals of the run worker are no news for a person. */
const ASKED: readonly unknown[] = [PAUSE, RESUME, CANCEL_SIGNAL];

function askedBy(event: Event): string | undefined {
  if (event.workflowExecutionCancelRequestedEventAttributes) return CANCEL_SIGNAL;
  const name =
    event.workflowExecutionSignaledEventAttributes?.signalName ??
    event.workflowExecutionUpdateAcceptedEventAttributes?.acceptedRequest?.input?.name;
  return ASKED.includes(name) ? (name as string) : undefined;
}

function isoOf(moment: Moment | null | undefined): string | null {
  if (!moment) return null;
  return new Date(Number(moment.seconds ?? 0) * 1000 + (moment.nanos ?? 0) / 1e6).toISOString();
}
