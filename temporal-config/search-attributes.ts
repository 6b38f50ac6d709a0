import { setTimeout as delay } from 'node:timers/promises';
import { type Connection, isGrpcServiceError } from '@temporalio/client';
import { messageOf } from '../contracts/failures.ts';
import { SEARCH_ATTRIBUTES } from '../contracts/search-attributes.ts';

/** gRPC's number of INVALID_ARGUMENT. */
const INVALID_ARGUMENT = 3;
/** Milliseconds that a server may take to know new ones. */
const KNOWN_MS = 60_000;

/** Numbers of Temporal's enum IndexedValueType. */
const INDEXED_VALUE_TYPE: Record<string, number> = {
  TEXT: 1,
  KEYWORD: 2,
  INT: 3,
  DOUBLE: 4,
  BOOL: 5,
  DATETIME: 6,
  KEYWORD_LIST: 7,
};

/**
 * Registers the search attributes that are missing in a namespace, on any server; those that are there stay. Resolves when
 * rollouts may have them.
 * @returns the names that were added.
 * @throws Error if one exists with another type, or the server has no room for more.
 */
export async function registerSearchAttributes(connection: Connection, namespace: string): Promise<string[]> {
  const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
  const missing: Record<string, number> = {};
  for (const { name, type } of Object.values(SEARCH_ATTRIBUTES)) {
    const wanted = INDEXED_VALUE_TYPE[type] as number;
    const existing = customAttributes?.[name];
    if (existing === undefined || existing === null) missing[name] = wanted;
    else if (existing !== wanted) {
      throw new Error(
        `search attribute ${name} exists in namespace ${namespace} with another type than ${type}`,
      );
    }
  }
  const names = Object.keys(missing);
  if (names.length === 0) return [];
  try {
    await connection.operatorService.addSearchAttributes({ namespace, searchAttributes: missing });
  } catch (error) {
    // Another process may have registered them between the look and the act.
    if (!/already exist/i.test(messageOf(error))) throw error;
  }
  await untilKnown(connection, namespace, names);
  return names;
}

/** The server's frontends look for changes of a namespace every few seconds; until then they refuse rollouts. */
async function untilKnown(connection: Connection, namespace: string, names: readonly string[]) {
  const giveUpAt = Date.now() + KNOWN_MS;
  const query = names.map((name) => `${name} IS NULL`).join(' AND ');
  for (;;) {
    try {
      await connection.workflowService.countWorkflowExecutions({ namespace, query });
      return;
    } catch (error) {
      const unknown = isGrpcServiceError(error) && Number(error.code) === INVALID_ARGUMENT;
      if (!unknown || Date.now() > giveUpAt) throw error;
      await delay(500);
    }
  }
}
