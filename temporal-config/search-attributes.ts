import type { Connection } from '@temporalio/client';
import { messageOf } from '../contracts/failures.ts';
import { SEARCH_ATTRIBUTES } from '../contracts/search-attributes.ts';

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
 * Registers the search attributes that are missing in a namespace, on any server; those that are there stay.
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
  return names;
}
