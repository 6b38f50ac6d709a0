import {
  ActivityCancellationType,
  ActivityFailure,
  type ActivityOptions,
  ApplicationFailure,
  proxyActivities,
  sleep,
} from '@temporalio/workflow';
import type { SettledRequest } from '../contracts/deadlines.ts';
import type { FailureType } from '../contracts/failures.ts';
import { evalQueue, initQueue, RECORDS_QUEUE } from '../contracts/queues.ts';
import type { RolloutRequest } from '../contracts/request.ts';
import {
  type ControlActivities,
  type EvaluateActivities,
  type InitActivities,
  type InitInput,
  MOST_WAITING_SECONDS,
  type Placement,
  type RunActivities,
} from '../contracts/stages.ts';

/** Seconds that a run may take beyond its deadline to hand its results over. */
const HAND_OVER_SECONDS = 120;

/** Every stage: the workflow alone tries again, and a cancelled stage says what it left behind. */
function stageOptions(request: RolloutRequest): ActivityOptions {
  return {
    retry: { maximumAttempts: 1 },
    heartbeatTimeout: `${request.heartbeatTimeoutSeconds}s`,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  };
}

/** Init waits on a shared queue for any host with room. */
export async function initStage(
  request: RolloutRequest,
  input: Omit<InitInput, 'request'>,
): Promise<Placement> {
  const { init } = proxyActivities<InitActivities>({
    ...stageOptions(request),
    taskQueue: initQueue(),
    scheduleToStartTimeout: `${request.deadlines.queueSeconds}s`,
    startToCloseTimeout: `${request.deadlines.initSeconds}s`,
    summary: `${request.task.handler} ${request.task.id} · sample ${request.sample}`,
  });
  for (;;) {
    try {
      return await init({ request, ...input });
    } catch (error) {
      if (!isOfDrainedHost(error)) throw error;
      await sleep('1s'); // it had asked for work before it was drained, and asks for no more
    }
  }
}

function isOfDrainedHost(error: unknown): boolean {
  const cause = error instanceof ActivityFailure ? error.cause : error;
  return cause instanceof ApplicationFailure && cause.type === ('HostDrained' satisfies FailureType);
}

/**
 * Run follows the sandbox to its host's queue. A host that does not take its task soon is lost; it had room
 * for the sandbox, so this is no wait for capacity. Silence that has passed already counts. The activity
 * keeps its own deadline and grades what exists; the server's timeout is for one that cannot.
 */
export function runStage(
  request: RolloutRequest,
  placement: Placement,
  clock: { readonly remainingMs: number; readonly silentSeconds: number },
): RunActivities {
  const { hostLostSeconds, limits } = request;
  const waitSeconds = Math.max(hostLostSeconds - clock.silentSeconds, hostLostSeconds / 2);
  // The clock stands while a tool call that a pause came upon ends.
  const graceSeconds = limits.toolTimeoutSeconds + MOST_WAITING_SECONDS + HAND_OVER_SECONDS;
  return proxyActivities<RunActivities>({
    ...stageOptions(request),
    taskQueue: placement.runQueue,
    scheduleToStartTimeout: `${waitSeconds}s`,
    startToCloseTimeout: clock.remainingMs + graceSeconds * 1000,
    summary: `on ${placement.host} in ${placement.backend}`,
  });
}

/** Evaluate takes what it needs from the store, on any machine. */
export function evaluateStage(request: SettledRequest, summary: string): EvaluateActivities {
  return proxyActivities<EvaluateActivities>({
    ...stageOptions(request),
    taskQueue: evalQueue(),
    scheduleToStartTimeout: `${request.deadlines.queueSeconds}s`,
    startToCloseTimeout: `${request.deadlines.evaluateSeconds}s`,
    summary,
  });
}

/**
 * Commands to the sandbox's host. The server retries these, for a while: a host that stays away has taken
 * its sandboxes with it.
 */
export function controlOf(
  placement: Placement,
  summary: string,
  within: '60s' | '10m' | '7d' = '60s',
): ControlActivities {
  return proxyActivities<ControlActivities>({
    taskQueue: placement.controlQueue,
    startToCloseTimeout: '30s',
    scheduleToCloseTimeout: within,
    retry: { initialInterval: '1s', maximumInterval: '10s' },
    summary,
  });
}

/**
 * Keeps a workspace in the store in place of its sandbox; it may be large. In a pause nothing waits for it; one who is
 * leaving waits no longer for a host that has died than another would.
 */
export function shelveActivity(
  placement: Placement,
  leaving: RolloutRequest | undefined,
): Pick<ControlActivities, 'shelve'> {
  return proxyActivities<ControlActivities>({
    ...(leaving && {
      scheduleToStartTimeout: `${leaving.hostLostSeconds}s`,
      heartbeatTimeout: `${leaving.heartbeatTimeoutSeconds}s`,
    }),
    taskQueue: placement.controlQueue,
    startToCloseTimeout: '15m',
    scheduleToCloseTimeout: '30m',
    retry: { initialInterval: '1s', maximumInterval: '30s', maximumAttempts: 5 },
    summary: `shelve: ${leaving ? 'leaves' : 'paused for long on'} ${placement.host}`,
  });
}

/** Keeps the terminal record of a rollout that was not graded. A full disk may be freed: try for long. */
export function concludeActivity(summary: string): Pick<EvaluateActivities, 'conclude'> {
  return proxyActivities<EvaluateActivities>({
    taskQueue: RECORDS_QUEUE,
    startToCloseTimeout: '30s',
    scheduleToCloseTimeout: '10m',
    retry: { initialInterval: '1s', maximumInterval: '30s' },
    summary,
  });
}
