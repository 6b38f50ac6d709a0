import { AsyncLocalStorage } from 'node:async_hooks';
import type { Context } from '@temporalio/activity';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';

/** What a process is working on at a place in its code: known to log lines and counts without being handed on. */
export interface Work {
  /** Of Temporal, if it is in one. */
  readonly activity?: string;
  /** Of activities of a workflow: of a stage, the rollout's id. */
  readonly workflow?: string;
  /** Of a stage. */
  readonly rollout?: string;
  /** Of the rollout. */
  readonly attempt?: number;
  /** Name of the handler of the rollout's task. */
  readonly kind?: string;
}

const storage = new AsyncLocalStorage<Work>();

/** What is worked on here; undefined outside of activities. */
export function currentWork(): Work | undefined {
  return storage.getStore();
}

/** What a process does in `task` is done on that. */
export function working<R>(work: Work, task: () => R): R {
  return storage.run(work, task);
}

/** How log lines say it. */
export function logFields(work: Work | undefined): Record<string, string | number> {
  if (!work) return {};
  const { activity, workflow, rollout, attempt } = work;
  return {
    ...(activity === undefined ? {} : { stage: activity }),
    ...(rollout === undefined ? (workflow === undefined ? {} : { workflow }) : { rollout }),
    ...(attempt === undefined ? {} : { attempt }),
  };
}

/** Makes what an activity works on known to all that it calls, to lines of its own log, and to what the SDK says of its end. */
export const withWork: ActivityInterceptorsFactory = (context) => {
  let work = workOf(context, undefined);
  return {
    inbound: {
      execute: (input, next) => {
        work = workOf(context, input.args[0]);
        return working(work, () => next(input));
      },
    },
    // The SDK keeps lines for a moment and writes them from elsewhere; and its own attempt is that of the activity.
    outbound: {
      getLogAttributes: ({ attempt: _, ...attributes }, next) => next({ ...attributes, ...logFields(work) }),
    },
  };
};

/** Stages are given the rollout's request and its attempt. */
function workOf({ info }: Context, input: unknown): Work {
  const { request, attempt } = (input ?? {}) as {
    readonly request?: { readonly rolloutId?: string; readonly task?: { readonly handler?: string } };
    readonly attempt?: number;
  };
  const workflow = info.workflowExecution?.workflowId;
  return {
    activity: info.activityType,
    ...(workflow === undefined ? {} : { workflow }),
    ...(request?.rolloutId === undefined ? {} : { rollout: request.rolloutId }),
    ...(attempt === undefined ? {} : { attempt }),
    ...(request?.task?.handler === undefined ? {} : { kind: request.task.handler }),
  };
}
