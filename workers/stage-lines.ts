import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { Logger } from 'pino';
import type { RolloutResult } from '../contracts/result.ts';
import type { Placement, RunReport } from '../contracts/stages.ts';

/** What is said of a stage that has come to its end, by activity: the message, and figures of what it returned. */
const SAID: Readonly<Record<string, (returned: never) => [string, Record<string, unknown>]>> = {
  init: ({ sandboxId, backend, ms }: Placement) => ['its sandbox is ready', { sandboxId, backend, ms }],
  run: ({ ended, turns, tokens, ms }: RunReport) => ['its agent has stopped', { ended, turns, tokens, ms }],
  evaluate: ({ outcome, reward, timings }: RolloutResult) => [
    'it is graded',
    { ended: outcome, reward: reward?.total, ms: timings.evaluateMs },
  ],
  conclude: ({ outcome }: RolloutResult) => ['it ends without a grade', { ended: outcome }],
};

/** A line at the end of each stage: what became of a rollout can be read from logs alone. Failures are the SDK's to tell. */
export function stageLines(log: Logger): ActivityInterceptorsFactory {
  return ({ info }) => {
    const said = SAID[info.activityType];
    if (!said) return {};
    return {
      inbound: {
        execute: async (input, next) => {
          const returned = await next(input);
          const [message, figures] = said(returned as never);
          log.info(figures, message);
          return returned;
        },
      },
    };
  };
}
