import { ApplicationFailure, CancelledFailure } from '@temporalio/activity';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import { isFailureType } from '../../contracts/failures.ts';
import type { Metrics } from './metrics.ts';

/** They last as long as their process: neither their time nor their number says anything. */
const STANDING = new Set(['presence']);

/** Counts and times the activities of a process. */
export function countActivities(metrics: Metrics): ActivityInterceptorsFactory {
  const wait = metrics.histogram('rollouts_activity_wait_seconds');
  const seconds = metrics.histogram('rollouts_activity_seconds');
  const running = metrics.gauge('rollouts_activity_running');
  const failures = metrics.counter('rollouts_activity_failures_total');
  return ({ info }) => {
    const activity = info.activityType;
    if (STANDING.has(activity)) return {};
    return {
      inbound: {
        execute: async (input, next) => {
          // By two machines' clocks.
          const waited = (Date.now() - info.currentAttemptScheduledTimestampMs) / 1000;
          wait.observe({ activity }, Math.max(0, waited));
          running.inc({ activity });
          const began = performance.now();
          let end = 'ok';
          try {
            return await next(input);
          } catch (error) {
            end = error instanceof CancelledFailure ? 'cancelled' : 'failed';
            if (end === 'failed') failures.inc({ activity, type: typeOf(error) });
            throw error;
          } finally {
            running.dec({ activity });
            seconds.observe({ activity, end }, (performance.now() - began) / 1000);
          }
        },
      },
    };
  };
}

function typeOf(error: unknown): string {
  const type = error instanceof ApplicationFailure ? error.type : undefined;
  return type && isFailureType(type) ? type : 'Other';
}
