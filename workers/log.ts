import { DefaultLogger, type Logger, type LogLevel } from '@temporalio/worker';
import { type DestinationStream, type Logger as Pino, pino } from 'pino';
import type { Config } from '../config/load.ts';
import { ROLLOUT_WORKFLOW } from '../contracts/signals.ts';
import { redacted, redactedError, redactedText } from './redact.ts';
import { currentWork, logFields } from './work-context.ts';

/** Processes that write logs; `temporal` is the Temporal SDK's part in each. */
export type LogComponent = keyof Config['log']['levels'];

/** Names in log lines. */
const NAMES: Record<LogComponent, string> = {
  worker: 'worker',
  sandboxHost: 'sandbox-host',
  gateway: 'gateway',
  codecServer: 'codec-server',
  temporal: 'temporal',
};

/** What a logger is made by. */
export interface LogSettings {
  readonly log: Config['log'];
  readonly derived: Pick<Config['derived'], 'host'>;
}

/**
 * A JSON-lines logger on standard error, one per process. Each line says what was worked on where it was written: the
 * rollout, its attempt, the stage, the host; secrets and answers of tasks are left out.
 */
export function makeLogger(
  component: LogComponent,
  { log, derived }: LogSettings,
  stream: DestinationStream = pino.destination({ fd: 2, sync: true }),
): Pino {
  const options = {
    level: log.levels[component] ?? log.level,
    base: { component: NAMES[component], host: derived.host, pid: process.pid },
    mixin: () => logFields(currentWork()),
    formatters: { log: (fields: object) => redacted(fields) as Record<string, unknown> },
    serializers: { err: redactedError },
    hooks: { streamWrite: redactedText },
  };
  return pino(options, stream);
}

const LEVELS: Record<LogLevel, 'trace' | 'debug' | 'info' | 'warn' | 'error'> = {
  TRACE: 'trace',
  DEBUG: 'debug',
  INFO: 'info',
  WARN: 'warn',
  ERROR: 'error',
};

/** The same log for the Temporal SDK's own lines, at its own level. */
export function temporalLogger(log: Pino, { levels, level }: Config['log']): Logger {
  const own = log.child({}, { level: levels.temporal ?? level });
  return new DefaultLogger('TRACE', ({ level, meta = {}, message }) => {
    // The token of a task says nothing to anybody but the server.
    const { taskToken: _, error, ...fields } = meta;
    const { workflowType, workflowId } = fields;
    own[LEVELS[level]](
      {
        ...(workflowType === ROLLOUT_WORKFLOW ? { rollout: workflowId } : {}),
        ...fields,
        ...(error === undefined ? {} : { err: error }),
      },
      message,
    );
  });
}
