import { DefaultLogger, type Logger, type LogLevel } from '@temporalio/worker';
import { type Logger as Pino, pino } from 'pino';

/** A JSON-lines logger on standard error, one per process. */
export function makeLogger(component: string, level: string): Pino {
  return pino({ level, base: { component, pid: process.pid } }, pino.destination({ fd: 2, sync: true }));
}

const LEVELS: Record<LogLevel, 'trace' | 'debug' | 'info' | 'warn' | 'error'> = {
  TRACE: 'trace',
  DEBUG: 'debug',
  INFO: 'info',
  WARN: 'warn',
  ERROR: 'error',
};

/** The same log for the Temporal SDK's own lines. */
export function temporalLogger(log: Pino): Logger {
  return new DefaultLogger('INFO', (entry) => {
    log[LEVELS[entry.level]](entry.meta ?? {}, entry.message);
  });
}
