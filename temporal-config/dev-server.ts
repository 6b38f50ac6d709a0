import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Connection } from '@temporalio/client';
import { SEARCH_ATTRIBUTES } from '../contracts/search-attributes.ts';

/** What the development server is started with. */
export interface DevServerOptions {
  readonly port: number;
  readonly uiPort: number;
  /** SQLite file; it outlives the server. */
  readonly databaseFile: string;
  readonly namespace: string;
  /** Where it listens; the loopback address if absent. */
  readonly address?: string;
  /** Where the pages of its UI have encrypted payloads opened. */
  readonly codecUrl?: string;
}

const TYPE_NAME: Record<string, string> = { KEYWORD: 'Keyword', INT: 'Int', DOUBLE: 'Double' };

/** Arguments of the Temporal CLI for a development server. */
export function devServerArguments(options: DevServerOptions): string[] {
  const { address = '127.0.0.1' } = options;
  const attributes = Object.values(SEARCH_ATTRIBUTES).flatMap(({ name, type }) => [
    '--search-attribute',
    `${name}=${TYPE_NAME[type]}`,
  ]);
  return [
    ...['server', 'start-dev', '--ip', address, '--ui-ip', address],
    ...['--port', String(options.port), '--ui-port', String(options.uiPort)],
    ...['--db-filename', options.databaseFile, '--namespace', options.namespace],
    ...['--log-level', 'warn', '--log-format', 'json'],
    ...(options.codecUrl === undefined ? [] : ['--ui-codec-endpoint', options.codecUrl]),
    ...attributes,
  ];
}

/**
 * The command that ends a program when this process dies, where the system has one (util-linux): the server
 * itself cannot watch its parent.
 */
export function withParentDeath(
  command: string,
  args: readonly string[],
  signal: 'KILL' | 'TERM' = 'KILL',
): [string, string[]] {
  const setpriv = ['/usr/bin/setpriv', '/bin/setpriv'].find((file) => existsSync(file));
  return setpriv ? [setpriv, ['--pdeathsig', signal, '--', command, ...args]] : [command, [...args]];
}

/** Milliseconds for one question: a server that ends while it starts answers none. */
const ANSWER_MS = 5000;

/**
 * Waits until a server answers and knows its namespace; no longer than it lives, if its end is known (`ended`).
 * @throws Error of the last try after `timeoutMs`, or when the server has ended.
 */
export async function waitForServer(
  address: string,
  namespace: string,
  { timeoutMs = 60_000, ended }: { timeoutMs?: number; ended?: Promise<unknown> } = {},
): Promise<Connection> {
  const giveUpAt = Date.now() + timeoutMs;
  let hasEnded = false;
  const end = () => {
    hasEnded = true;
  };
  ended?.then(end, end);
  for (;;) {
    let connection: Connection | undefined;
    try {
      connection = await Connection.connect({ address, connectTimeout: '2s' });
      const { workflowService } = connection;
      await connection.withDeadline(Date.now() + ANSWER_MS, () =>
        workflowService.describeNamespace({ namespace }),
      );
      // Another server may have its port.
      if (!hasEnded) return connection;
      throw new Error(`the Temporal server at ${address} has ended`);
    } catch (error) {
      await connection?.close();
      if (hasEnded || Date.now() > giveUpAt) throw error;
      await delay(100); // the server has no way to tell when it is ready
    }
  }
}
